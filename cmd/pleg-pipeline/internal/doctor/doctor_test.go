package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// options returns options with a call timeout of one second.
func options(endpoint string, dial ...grpc.DialOption) doctor.Options {
	return doctor.Options{
		Endpoint: endpoint, Source: "the test", DialOptions: dial, Timeout: time.Minute, CallTimeout: time.Second,
		Pressure: fstest.MapFS{},
		Usage:    func(string) (float64, float64, error) { return 50, 10, nil },
	}
}

// memory listens in memory, for a test in a synctest bubble.
func memory() (net.Listener, grpc.DialOption) {
	var m kit.Memory
	return m.Listen(), grpc.WithContextDialer(m.Dial)
}

// serve serves a simulated runtime in memory until the test ends.
func serve(t *testing.T, rt *simruntime.Runtime) doctor.Options {
	t.Helper()
	l, to := memory()
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, l) })
	t.Cleanup(rt.ClearAll)
	return options("unix:///in-memory", to)
}

func simulate(t *testing.T, o simruntime.Options) *simruntime.Runtime {
	t.Helper()
	rt, err := simruntime.New(o)
	kit.Must(t, err)
	return rt
}

func populate(t *testing.T, rt *simruntime.Runtime, p simruntime.Population) []simruntime.Pod {
	t.Helper()
	pods, err := rt.Populate(p)
	kit.Must(t, err)
	return pods
}

func inject(t *testing.T, rt *simruntime.Runtime, f simruntime.Fault) {
	t.Helper()
	if _, err := rt.Inject(f); err != nil {
		t.Fatal(err)
	}
}

// TestExamineSimulated has causes that no fault of the command simulate has. All pods have two
// containers.
func TestExamineSimulated(t *testing.T) {
	for _, test := range []struct {
		name     string
		options  simruntime.Options
		breakIt  func(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod)
		cause    verdict.Cause // of the first finding; empty for none
		severity verdict.Severity
		evidence []string
	}{
		{"healthy", simruntime.Options{}, nil, "", "", nil},
		{"no call takes a second", simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) {
			for n, d := range []time.Duration{999 * time.Millisecond, 900 * time.Millisecond} {
				inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", ID: pods[7+n].Containers[1].ID, Latency: d})
			}
		}, "", "", nil},
		{"every status is slow", simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, _ []simruntime.Pod) {
			inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", Latency: 220 * time.Millisecond})
		}, verdict.RuntimeSlow, verdict.Warning, []string{"half of the ContainerStatus calls take 220ms or longer"}},
		{"some of many slow calls do not return", simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) {
			for n, p := range pods {
				inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", ID: p.Containers[0].ID, Latency: 300 * time.Millisecond, Hang: n%2 > 0})
				inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", ID: p.Containers[1].ID, Hang: n%4 > 0, Latency: 400 * time.Millisecond})
			}
		}, verdict.RuntimeSlow, verdict.Warning, []string{"half of the ContainerStatus calls take 1s or longer"}},
		{"dead containers", simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, _ []simruntime.Pod) {
			populate(t, rt, simruntime.Population{Pods: 1, Containers: 1, Dead: 250})
		}, verdict.DeadContainers, verdict.Warning, []string{"250 of 291 containers have exited and 0 of 21 sandboxes are not ready", " 250"}},
		{"a list is too large", simruntime.Options{MaxMessageBytes: 36 << 10}, func(t *testing.T, rt *simruntime.Runtime, _ []simruntime.Pod) {
			populate(t, rt, simruntime.Population{Pods: 20, Containers: 1})
			for i, text := range []string{"fat", "fatter"} {
				pod, err := rt.AddPod(simruntime.PodSpec{
					Name: text, Annotations: map[string]string{"note": strings.Repeat("x", (i+1)*7<<10)}, Containers: make([]simruntime.ContainerSpec, 1),
				})
				if err == nil {
					err = rt.StopPod(pod.UID) // it is in another portion than the others
				}
				kit.Must(t, err)
			}
		}, verdict.ListTooLarge, verdict.Problem, []string{"no list succeeds", "the largest pods: default/fatter ", "(annotations 14.", ", default/fat "}},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			rt := simulate(t, test.options)
			pods := populate(t, rt, simruntime.Population{Pods: 20, Containers: 2})
			if test.breakIt != nil {
				test.breakIt(t, rt, pods)
			}
			r := doctor.Examine(t.Context(), serve(t, rt))
			check(t, r, test.cause, test.severity, test.evidence...)
			if len(r.Slowest) != 5 || r.Slowest[0].Seconds < r.Slowest[4].Seconds {
				t.Errorf("slowest %+v, want five, the slowest first", r.Slowest)
			}
		})
	}
}

// check checks the first finding in both outputs.
func check(t *testing.T, r *doctor.Report, cause verdict.Cause, severity verdict.Severity, evidence ...string) {
	t.Helper()
	var text bytes.Buffer
	if err := r.Print(&text, doctor.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if cause == "" {
		if len(r.Findings) > 0 || !r.Healthy() || !strings.HasPrefix(text.String(), "OK: ") {
			t.Errorf("findings %+v, want none:\n%s", r.Findings, &text)
		}
		return
	}
	if len(r.Findings) == 0 || r.Findings[0].Cause != cause || r.Findings[0].Severity != severity || r.Findings[0].Advice == "" {
		t.Fatalf("findings %+v, want a %s: %s", r.Findings, severity, cause)
	}
	if r.Healthy() == (severity == verdict.Problem) {
		t.Errorf("Healthy() = %v with a %s", r.Healthy(), severity)
	}
	first, _, _ := strings.Cut(text.String(), "\n")
	if first != r.Verdict || !strings.HasPrefix(first, strings.ToUpper(string(severity))+": ") {
		t.Errorf("first line %q, want the verdict %q", first, r.Verdict)
	}
	for _, want := range evidence {
		if !strings.Contains(r.Findings[0].Evidence, want) {
			t.Errorf("evidence %q, want %q in it", r.Findings[0].Evidence, want)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// TestExamineEndsInTime has more hung calls than fit into the timeout.
func TestExamineEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simulate(t, simruntime.Options{})
		populate(t, rt, simruntime.Population{Pods: 50, Containers: 2})
		inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", Hang: true})
		o := serve(t, rt)
		o.Timeout, o.CallTimeout = 4*time.Second, time.Second
		r := doctor.Examine(t.Context(), o)
		if r.TookSeconds != 4 {
			t.Errorf("took %v s, want 4", r.TookSeconds)
		}
		if c := r.Counts; c.Inspected >= 150 || len(r.Hung) == 0 {
			t.Errorf("%d inspected and %d hung, want some", c.Inspected, len(r.Hung))
		}
		check(t, r, verdict.RuntimeSlow, verdict.Problem, " ContainerStatus calls do not return within 1s")
		var text bytes.Buffer
		if _ = r.Print(&text, doctor.TextOptions{}); !strings.Contains(text.String(), "Partial ") {
			t.Errorf("text = %s, want it to say that it is partial", &text)
		}
	})
}

// TestExamineHungCallsLeaveRoom has more hung calls than may be in flight.
func TestExamineHungCallsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simulate(t, simruntime.Options{})
		populate(t, rt, simruntime.Population{Pods: 10, Containers: 2})
		inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", Hang: true})
		o := serve(t, rt)
		o.CallTimeout, o.Timeout = 4*time.Second, 15*time.Second // four at a time, 20 would take 20 s
		if r := doctor.Examine(t.Context(), o); len(r.Hung) != 20 {
			t.Errorf("%d of 20 hang, want all to be found", len(r.Hung))
		}
	})
}

func TestExamineEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simulate(t, simruntime.Options{})
		inject(t, rt, simruntime.Fault{RPC: "ListContainers", Hang: true})
		o := serve(t, rt)
		o.CallTimeout = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if r := doctor.Examine(ctx, o); len(r.Calls) < 3 || r.Calls[0].Failed+r.Calls[0].Hung > 0 {
			t.Errorf("calls %+v, want the calls until then", r.Calls)
		}
	})
}
