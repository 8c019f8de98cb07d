package cri_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// Each option acts: a row gives it a value of its own.
func TestOptionsAct(t *testing.T) {
	var log kit.Log
	registry, renamed, intercepted, calls := prometheus.NewRegistry(), prometheus.NewRegistry(), prometheus.NewRegistry(), 0
	list := func(ctx context.Context, c *cri.Client) error { _, err := c.ListPods(ctx); return err }
	ends := func(after time.Duration, call func(context.Context, *cri.Client) error) func(*testing.T, *cri.Client) {
		return func(t *testing.T, c *cri.Client) {
			began := time.Now()
			if err := call(t.Context(), c); err == nil || time.Since(began) != after {
				t.Errorf("%v after %v, want an error after %v", err, time.Since(began), after)
			}
		}
	}
	hang := func(ctx context.Context, _ any) error { <-ctx.Done(); return ctx.Err() }
	named := func(name string) func(*dto.MetricFamily) bool {
		return func(m *dto.MetricFamily) bool { return m.GetName() == name }
	}
	type row struct {
		options cri.Options
		before  func(ctx context.Context, request any) error
		require func(*testing.T, *cri.Client)
	}
	rows := map[string]row{
		"ListTimeout": {cri.Options{ListTimeout: 7 * time.Second}, hang, ends(7*time.Second, list)},
		"StatusTimeout": {cri.Options{StatusTimeout: 11 * time.Second}, func(ctx context.Context, request any) error {
			if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
				return hang(ctx, request)
			}
			return nil
		}, ends(11*time.Second, func(ctx context.Context, c *cri.Client) error {
			pods, err := c.ListPods(ctx)
			if err == nil {
				_, err = c.PodStatus(ctx, pods[0], nil)
			}
			return err
		})},
		"ConnectTimeout": {cri.Options{ConnectTimeout: 13 * time.Second}, hang, ends(13*time.Second, func(ctx context.Context, c *cri.Client) error {
			_, err := c.Check(ctx)
			return err
		})},
		"MaxRecvBytes": {cri.Options{MaxRecvBytes: 100}, nil, func(t *testing.T, c *cri.Client) {
			if err := list(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the 100 bytes of Options.MaxRecvBytes") {
				t.Errorf("a list of more than 100 bytes: %v", err)
			}
		}},
		"Logger": {cri.Options{Logger: log.Logger()}, nil, func(t *testing.T, c *cri.Client) {
			must(t, list(t.Context(), c))
			synctest.Wait()
			log.RequireLines(t, 1, `level=WARN msg="malformed item in list" containerID=s1 podSandboxID="" name=name-s1 reason=shared_pod_uid`)
		}},
		"Registerer": {cri.Options{Registerer: registry}, nil, func(t *testing.T, c *cri.Client) {
			must(t, list(t.Context(), c))
			all, err := registry.Gather()
			must(t, err)
			if !slices.ContainsFunc(all, named("pleg_runtime_operations_total")) {
				t.Error("the registry does not have the metrics of the client")
			}
		}},
		"KubeletMetricNames": {cri.Options{Registerer: renamed, KubeletMetricNames: true}, nil, func(t *testing.T, c *cri.Client) {
			must(t, list(t.Context(), c))
			all, err := renamed.Gather()
			must(t, err)
			if !slices.ContainsFunc(all, named("kubelet_runtime_operations_total")) || slices.ContainsFunc(all, named("pleg_runtime_operations_total")) {
				t.Error("the operations do not have the name of the kubelet's")
			}
		}},
		"DialOptions": {cri.Options{Registerer: intercepted, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				calls++
				return status.Error(codes.Internal, "intercepted")
			})}}, nil, func(t *testing.T, c *cri.Client) {
			if _, err := c.Check(t.Context()); status.Code(err) != codes.Internal || calls == 0 {
				t.Errorf("Check = %v, and the interceptor saw %d calls", err, calls)
			}
			for _, name := range []string{"total", "errors_total", "duration_seconds"} { // the client's own interceptor comes first
				kit.RequireMetric(t, intercepted, 1, "pleg_runtime_operations_"+name, "version")
			}
		}},
	}
	kit.RequireRows(t, cri.Options{}, rows)
	for name, row := range rows {
		kit.Bubble(t, name, func(t *testing.T) {
			fake := &rawruntime.Runtime{Before: row.before}
			for n := range 2 { // both pods share a UID
				fake.Sandboxes = append(fake.Sandboxes, sandbox(fmt.Sprint("s", n), "u1", 0, int64(n)))
			}
			row.require(t, connect(t, fake, row.options))
		})
	}
}
