package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("CEST", 2*60*60)
	goleak.VerifyTestMain(m)
}

func options(endpoint string, dial ...grpc.DialOption) doctor.Options {
	return doctor.Options{
		Endpoint: endpoint, Source: "the test", DialOptions: dial, Watch: 10 * time.Second, Pressure: fstest.MapFS{},
		Host: host.Options{
			Proc: fstest.MapFS{}, Follower: kit.Follower{},
			Usage:   func(string) (float64, float64, error) { return 50, 10, nil },
			Sockets: func() ([]host.Socket, error) { return nil, nil },
		},
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

// TestExamineSimulated tests causes that no fault of the command simulate makes. All pods have two
// containers.
func TestExamineSimulated(t *testing.T) {
	for _, test := range []struct {
		name     string
		options  simruntime.Options
		breakIt  func(t *testing.T, rt *simruntime.Runtime, pods []*pleg.PodStatus)
		cause    verdict.Cause // of the first finding; empty for none
		severity verdict.Severity
		evidence []string
	}{
		{"healthy", simruntime.Options{}, nil, "", "", nil},
		{"no call takes a second", simruntime.Options{}, func(_ *testing.T, rt *simruntime.Runtime, pods []*pleg.PodStatus) {
			for n, d := range []time.Duration{999 * time.Millisecond, 900 * time.Millisecond} {
				rt.Inject(simruntime.Fault{RPC: "ContainerStatus", ID: pods[7+n].Containers[1].ID, Latency: d})
			}
		}, "", "", nil},
		{"every status is slow", simruntime.Options{}, func(_ *testing.T, rt *simruntime.Runtime, _ []*pleg.PodStatus) {
			rt.Inject(simruntime.Fault{RPC: "ContainerStatus", Latency: 1200 * time.Millisecond})
		}, verdict.RuntimeSlow, verdict.Warning, []string{"half of the inspections take 1.2s or longer"}},
		{"dead containers", simruntime.Options{}, func(_ *testing.T, rt *simruntime.Runtime, _ []*pleg.PodStatus) {
			rt.Populate(simruntime.Population{Pods: 1, Containers: 1, Dead: 250})
		}, verdict.DeadContainers, verdict.Warning, []string{"250 containers have exited and 0 sandboxes are not ready", ", 250"}},
		{"a list is too large", simruntime.Options{MaxMessageBytes: 70 << 10}, func(t *testing.T, rt *simruntime.Runtime, _ []*pleg.PodStatus) {
			rt.Populate(simruntime.Population{Pods: 20, Containers: 1})
			for i, text := range []string{"fat", "fatter"} {
				pod := rt.AddPod(simruntime.PodSpec{
					Name: text, Annotations: map[string]string{"note": strings.Repeat("x", (i+1)*20<<10)}, Containers: make([]pleg.ContainerStatus, 1),
				})
				kit.Must(t, rt.StopPod(pod.UID)) // a stopped pod is in another portion than the others
			}
		}, verdict.ListTooLarge, verdict.Problem, []string{"the list of all pods is too large", "default/fatter ", "default/fat "}},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			rt := simruntime.New(test.options)
			pods := rt.Populate(simruntime.Population{Pods: 20, Containers: 2})
			if test.breakIt != nil {
				test.breakIt(t, rt, pods)
			}
			o := serve(t, rt)
			o.NoDaemon = "none is asked"
			r := doctor.Examine(t.Context(), o)
			check(t, r, test.cause, test.severity, test.evidence...)
			if len(r.Findings) > 1 {
				t.Errorf("%d findings, want one: %+v", len(r.Findings), r.Findings)
			}
			if r.Counts.Pods < 20 || r.Counts.Running < 40 || len(r.Lists) != 2 && test.cause != verdict.ListTooLarge {
				t.Errorf("counts %+v, lists %+v", r.Counts, r.Lists)
			}
			if test.name != "no call takes a second" { // it is healthy
				golden(t, r)
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

// golden compares both forms of a report with a file: the text, and JSON.
func golden(t *testing.T, r interface {
	Print(io.Writer, doctor.TextOptions) error
},
) {
	t.Helper()
	var text strings.Builder
	kit.Must(t, r.Print(&text, doctor.TextOptions{Width: 100}))
	object, err := json.MarshalIndent(r, "", " ")
	kit.Must(t, err)
	kit.Golden(t, "testdata/"+strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())+".golden", text.String()+string(object)+"\n")
}

// TestExamineEnds examines a runtime that does not answer: it takes the time that was asked for, or ends
// with its context.
func TestExamineEnds(t *testing.T) {
	for name, ends := range map[string]time.Duration{"in time": time.Hour, "interrupted": 4 * time.Second} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := simruntime.New(simruntime.Options{})
			rt.Populate(simruntime.Population{Pods: 50, Containers: 2})
			rt.Inject(simruntime.Fault{RPC: "ContainerStatus", Hang: true})
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), ends)
			defer cancel()
			o := serve(t, rt)
			o.Ask = func(ctx context.Context) *doctor.Daemon {
				kit.Must(t, ctx.Err()) // also after an interrupt
				if asked := time.Since(began); asked < min(ends, o.Watch) {
					t.Errorf("the daemon is asked after %v, want it after the examination", asked)
				}
				time.Sleep(5 * time.Second) // the runtime is not watched meanwhile
				return nil
			}
			r := doctor.Examine(ctx, o)
			if want := min(ends, 10*time.Second).Seconds(); r.TookSeconds != want {
				t.Errorf("took %v s, want %v", r.TookSeconds, want)
			}
			check(t, r, verdict.RuntimeSlow, map[string]verdict.Severity{"in time": verdict.Problem, "interrupted": verdict.Warning}[name], " pods wait, the longest is ")
		})
	}
}

// TestExamineEndsAtOnce interrupts an examination before the runtime has said its version.
func TestExamineEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{})
		rt.Inject(simruntime.Fault{RPC: "Version", Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r := doctor.Examine(ctx, serve(t, rt))
		check(t, r, verdict.RuntimeFails, verdict.Problem, "it did not answer before the examination ended")
		if r.Verdict != "PROBLEM: the runtime fails: unix:///in-memory: Version: it did not answer before the examination ended" ||
			r.Findings[0].Evidence != "unix:///in-memory: it did not answer before the examination ended: check runtime at unix:///in-memory: context canceled" {
			t.Errorf("verdict %q, evidence %q", r.Verdict, r.Findings[0].Evidence)
		}
	})
}

// A runtime that does not say its version within two seconds is watched anyway.
func TestExamineWithoutAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{})
		rt.Inject(simruntime.Fault{RPC: "Version", Hang: true})
		r := doctor.Examine(t.Context(), serve(t, rt))
		var text strings.Builder
		kit.Must(t, r.Print(&text, doctor.TextOptions{}))
		if want := "\nRuntime     no answer at unix:///in-memory (from the test), watched for 12s\n"; !strings.HasSuffix(text.String(), want) {
			t.Errorf("the report is %q, want %q at its end", &text, want)
		}
	})
}

// A report that cannot be written is an error.
func TestReportsAreWritten(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	kit.Must(t, r.Close())
	for name, err := range map[string]error{
		"of a node":  doctor.Judge(nil).Print(w, doctor.TextOptions{}),
		"of a fleet": doctor.Rank(nil, time.Now()).Print(w, doctor.TextOptions{}),
		"of calls":   new(doctor.Load).Print(w),
	} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a report %s: %v", name, err)
		}
	}
}
