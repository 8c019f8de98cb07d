package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ node.Pipeline = (*pipeline.Pipeline)(nil)
	_ node.Pipeline = (*client.Client)(nil)
)

// onBoth runs a test with a pipeline in this process, and again with a pipeline in a daemon. The
// list of the runtime hangs until the test ends that fault.
func onBoth(t *testing.T, test func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline)) {
	t.Helper()
	for _, where := range []string{"in this process", "in a daemon"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := plegtest.New()
				runtime.SetListFault(plegtest.Delay(time.Hour))
				pipe := kit.New(t, pipeline.Options{Runtime: runtime, RelistPeriod: time.Minute})
				pipe.Start(t)
				if where == "in this process" {
					test(t, runtime, pipe)
					return
				}
				s, err := server.New(pipe.Pipeline, server.Options{})
				kit.Must(t, err)
				dial, _ := kit.Serve(t, s.Serve)
				c, err := client.New("", client.Options{Dial: dial})
				kit.Must(t, err)
				t.Cleanup(func() { c.Close() })
				test(t, runtime, c)
			})
		})
	}
}

// Until the first list is committed, no answer says that a pod is gone, and WaitSynced waits.
func TestNotSyncedIsNotGone(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.Set("shop/web", "c1=running")
		questions := func(want error) {
			t.Helper()
			_, ofPod := p.PodStatus(t.Context(), "unknown", time.Time{})
			_, ofPods := p.Pods(t.Context())
			_, ofSome := p.Pods(t.Context(), "unknown")
			_, ofContainer := p.Lookup(t.Context(), lookup.Query{Container: "unknown"})
			for of, err := range map[string]error{"PodStatus": ofPod, "Pods": ofPods, "Pods of a UID": ofSome, "Lookup": ofContainer} {
				if got := errors.Is(err, pleg.ErrNotSynced); got != (want != nil) {
					t.Errorf("%s: %v, want ErrNotSynced: %v", of, err, want != nil)
				}
				if errors.Is(err, pleg.ErrNoDaemon) {
					t.Errorf("%s: %v, but the daemon is there", of, err)
				}
			}
			if !errors.Is(ofContainer, lookup.ErrNotYet) {
				t.Errorf("Lookup: %v, want ErrNotYet", ofContainer)
			}
			if want == nil && (!errors.Is(ofPod, pleg.ErrUnknownPod) || !strings.Contains(ofPod.Error(), "pod unknown")) {
				t.Errorf("PodStatus: %v, want ErrUnknownPod and the UID", ofPod)
			}
		}
		questions(pleg.ErrNotSynced)
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
		defer stop()
		if err := p.WaitSynced(ctx); err == nil || err.Error() != "too long" {
			t.Errorf("WaitSynced = %v, want the cause of its context", err)
		}
		synced := make(chan error)
		go func() { synced <- p.WaitSynced(t.Context()) }()
		time.Sleep(30 * time.Minute)
		select {
		case err := <-synced:
			t.Errorf("WaitSynced = %v before the first list", err)
		default:
		}
		runtime.SetListFault(nil)
		began := time.Now()
		kit.Must(t, <-synced)
		if waited := time.Since(began); waited > time.Hour {
			t.Errorf("WaitSynced returned %v later", waited)
		}
		questions(nil)
		pods, err := p.Pods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].UID != "shop/web" {
			t.Errorf("Pods = %+v, %v, want one", pods, err)
		}
		kit.Must(t, p.WaitSynced(t.Context()))
	})
}

// A program that knows of a change does not wait for the next list of all pods.
func TestRelistPod(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.Set("shop/web", "c1=running")
		runtime.SetListFault(nil)
		kit.Must(t, p.WaitSynced(t.Context()))
		time.Sleep(time.Second)
		lists := runtime.Counts().Lists
		runtime.Set("shop/web", "c1=exited")
		began := time.Now()
		status, err := p.RelistPod(t.Context(), "shop/web")
		if err != nil || status.Container("c1").State != pleg.StateExited {
			t.Errorf("RelistPod = %+v, %v, want the change", status, err)
		}
		if took := time.Since(began); took > time.Second || runtime.Counts().Lists != lists {
			t.Errorf("it took %v and %d lists of all pods", took, runtime.Counts().Lists-lists)
		}
		runtime.Remove("shop/web")
		if _, err := p.RelistPod(t.Context(), "shop/web"); !errors.Is(err, pleg.ErrUnknownPod) {
			t.Errorf("RelistPod of a removed pod = %v, want ErrUnknownPod", err)
		}
	})
}
