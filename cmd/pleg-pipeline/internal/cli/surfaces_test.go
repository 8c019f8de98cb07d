package cli_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestEverySurfaceSaysTheSame breaks the runtime of a daemon. Whatever shows health must name the
// same cause, and the same age from the first attempt on.
func TestEverySurfaceSaysTheSame(t *testing.T) {
	fault := func(f simruntime.Fault) func(*testing.T, *kit.Simulation) {
		return func(t *testing.T, s *kit.Simulation) {
			if _, err := s.Node.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		begin func(*testing.T, *kit.Simulation)
		after time.Duration
		cause verdict.Cause
		want  string
	}{
		"a list hangs": {
			fault(simruntime.Fault{RPC: "ListContainers", Hang: true}), 4 * time.Second, verdict.RuntimeHangs,
			"WARNING: the list of all pods hangs since 00:00 (3.0s) in ListContainers",
		},
		"a list hangs for long": {
			fault(simruntime.Fault{RPC: "ListContainers", Hang: true}), 10 * time.Second, verdict.RuntimeHangs,
			"PROBLEM: the list of all pods hangs since 00:00 (9.0s) in ListContainers",
		},
		"lists time out": {
			fault(simruntime.Fault{RPC: "ListContainers", Hang: true}), 5*time.Minute + 30*time.Second, verdict.RuntimeHangs,
			"PROBLEM: the list of all pods hangs since 00:00 (5m, 3 attempts) in ListContainers",
		},
		"the runtime ends": {
			func(_ *testing.T, s *kit.Simulation) { s.StopServing() }, 2500 * time.Millisecond, verdict.RuntimeStopped,
			"PROBLEM: the runtime is stopped since 00:00 (1.5s",
		},
		"a list fails": {
			fault(simruntime.Fault{RPC: "ListContainers", Code: codes.Internal, Message: "broken"}), 20500 * time.Millisecond, verdict.RuntimeFails,
			"PROBLEM: the list of all pods fails since 00:00 (19s, 20 attempts): list pods: list containers: broken",
		},
		"lists are slow": {
			fault(simruntime.Fault{RPC: "ListContainers", Latency: 2 * time.Second}), 20500 * time.Millisecond, verdict.RuntimeSlow,
			"WARNING: the runtime is slow since 00:00 (16s): the list of all pods takes 2.0s",
		},
		"the list is too large": {
			fault(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.ResourceExhausted}), 20500 * time.Millisecond, verdict.Fallback,
			"WARNING: the runtime works by a fallback since 00:00 (18s): ",
		},
		"a shim hangs": {
			hangShim, 20 * time.Second, verdict.HungShim,
			"PROBLEM: shop/web-0 has a hung shim since 00:00 (20s): ",
		},
		"a pod hangs": {
			hangWeb, 20500 * time.Millisecond, verdict.HungContainer, "PROBLEM: shop/web-0 hangs since 00:00 (19s) in ContainerStatus of nginx; the other 4 pods answer",
		},
		"a pod hangs for long": {
			hangWeb, 24 * time.Minute, verdict.HungContainer, "PROBLEM: shop/web-0 hangs since 00:00 (23m, 11 attempts) in ContainerStatus of nginx; the other 4 pods answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node, err := simruntime.New(simruntime.Options{Seed: 1})
				kit.Must(t, err)
				if _, err := node.Populate(simruntime.Population{Pods: 4, Containers: 1}); err != nil {
					t.Fatal(err)
				}
				s := kit.Simulate(t, node, pipeline.Options{}, cri.Options{})
				dial := serveDaemon(t, s.Pipeline.Pipeline)
				test.begin(t, s)
				time.Sleep(test.after)
				level, rest, _ := strings.Cut(test.want, ": ")
				age := regexp.MustCompile(` \([0-9.]+[smh]`).FindString(rest)
				if got, want := alert(t, s.Pipeline), strings.ToLower(level)+": "+string(test.cause)+age; got != want {
					t.Errorf("the alert: %q, want %q", got, want)
				}
				for surface, text := range surfaces(t, s.Pipeline, dial) {
					want := test.want
					if surface == "doctor --npd" { // has no ages
						want, _, _ = strings.Cut(want, " (")
					}
					if !strings.Contains(text, want) {
						t.Errorf("%s: %q, want %q", surface, text, want)
					}
				}
			})
		})
	}
}

// hangWeb adds a pod whose container hangs.
func hangWeb(t *testing.T, s *kit.Simulation) {
	t.Helper()
	pod, err := s.Node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	if err == nil {
		_, err = s.Node.Inject(simruntime.Fault{RPC: "ContainerStatus", ID: pod.Containers[0].ID, Hang: true})
	}
	kit.Must(t, err)
}

// hangShim adds a pod whose shim is stopped by a signal.
func hangShim(t *testing.T, s *kit.Simulation) {
	t.Helper()
	pod, err := s.Node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	kit.Must(t, err)
	s.Shims.Store(&[]pleg.Stuck{{
		UID: pleg.PodUID(pod.UID), Namespace: "shop", Name: "web-0", Since: time.Now(),
		Shim: &pleg.Process{PID: 4711, Name: "containerd-shim", State: "T"},
	}})
}

// serveDaemon serves a pipeline in memory and returns how to dial it.
func serveDaemon(t *testing.T, pipe *pipeline.Pipeline) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	daemon, err := server.New(pipe, server.Options{})
	kit.Must(t, err)
	listener := bufconn.Listen(1 << 20)
	kit.Run(t, func(ctx context.Context) error { return daemon.Serve(ctx, listener) })
	return func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
}

// clocks are the times in seconds that the screen has beside the verdict.
var clocks = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// alert returns what the alerts of deploy/monitoring are made of.
func alert(t *testing.T, p *kit.Pipeline) string {
	t.Helper()
	families, err := p.Metrics.Gather()
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "pleg_verdict_since_seconds" })
	if err != nil || at < 0 || len(families[at].GetMetric()) != 1 {
		t.Fatalf("no verdict in the metrics: %v", err)
	}
	m := families[at].GetMetric()[0]
	labels := m.GetLabel() // cause, level
	age := time.Since(time.UnixMicro(int64(m.GetGauge().GetValue() * 1e6)))
	return labels[1].GetValue() + ": " + labels[0].GetValue() + " (" + verdict.Span(age)
}

// surfaces returns what each surface says, as one line. The doctor finds no runtime: it only has
// what the daemon knows.
func surfaces(t *testing.T, p *kit.Pipeline, dial func(context.Context, string) (net.Conn, error)) map[string]string {
	t.Helper()
	h := httpserver.Handler(httpserver.Options{Pipeline: p.Pipeline, Gatherer: p.Metrics, Logger: slog.New(slog.DiscardHandler)})
	get := func(path string) string {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return answer.Body.String()
	}
	var figures struct{ Verdict struct{ Text string } }
	if err := json.Unmarshal([]byte(get("/stages")), &figures); err != nil {
		t.Error(err)
	}
	said := map[string]string{"the page": figures.Verdict.Text, "/readyz": get("/readyz?verbose")}
	for _, command := range []string{"doctor", "doctor --npd", "pods", "top"} {
		out, term := newTranscript(), vt.NewMockTerm()
		process := cli.Process{
			Args: append(strings.Fields(command), "--connect", "socket"), Out: out, Err: out, Dial: dial,
			Getenv:   func(name string) string { return hostileEnvironment[name] },
			Pressure: fstest.MapFS{}, Cgroups: fstest.MapFS{},
			Terminal: func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(term) },
		}
		ended := make(chan int, 1)
		go func() { ended <- cli.Execute(t.Context(), process) }()
		if command == "top" {
			time.Sleep(200 * time.Millisecond)
			_, _ = out.Write([]byte(shown(term)))
			term.SendRaw([]byte("q"))
		}
		<-ended
		said[command] = strings.Join(strings.Fields(clocks.ReplaceAllString(out.String(), "")), " ")
	}
	return said
}
