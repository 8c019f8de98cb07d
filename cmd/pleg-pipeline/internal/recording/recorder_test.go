package recording_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestReplayOfWhatHangs records calls that never end: the pods are as silent in
// the replay, which ends all the same.
func TestReplayOfWhatHangs(t *testing.T) {
	for name, rpc := range map[string]string{"a container": "ContainerStatus", "a list": "StreamContainers"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scene{pods: 5, simulated: simruntime.Options{Seed: 5}, play: func(t *testing.T, runtime *simruntime.Runtime) {
					churn(8, 40)(t, runtime)
					if _, err := runtime.Inject(simruntime.Fault{RPC: rpc, Hang: true}); err != nil {
						t.Fatal(err)
					}
					if rpc == "ContainerStatus" {
						churnSeed(9, 8, 40)(t, runtime)
					}
					time.Sleep(2500 * time.Millisecond)
				}}
				want, data := s.record(t)
				if !strings.Contains(string(data), `"pending":true`) {
					t.Error("nothing is pending in the recording")
				}
				// Errors of calls that were ended by the client name what ended them.
				got := replay(t, data, 1, pipeline.Options{}, false)
				for uid, state := range want.states {
					if strings.Contains(state, "rpc error") {
						delete(want.states, uid)
						delete(got.states, uid)
					}
				}
				want.events, got.events = nil, nil
				got.same(t, want)
			})
		})
	}
}

// TestReplaySpeed plays faster and slower than recorded.
func TestReplaySpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{pods: 5, simulated: simruntime.Options{Seed: 5, Profile: node(t)}, play: churn(2, 60)}
		want, data := s.record(t)
		for speed, period := range map[float64]time.Duration{10: 100 * time.Millisecond, 0.25: 4 * time.Second} {
			began := time.Now()
			replay(t, data, speed, pipeline.Options{RelistPeriod: period}, false).same(t, want)
			if took, wanted := time.Since(began), time.Duration(float64(35*time.Second)/speed); took < wanted*9/10 || took > wanted*11/10+2*time.Second {
				t.Errorf("at speed %v it takes %v, want about %v", speed, took, wanted)
			}
		}
	})
}

// broken is an output that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func (b broken) Flush() error { return b.err }

// TestRecorderTellsOfFailure while the pipeline works on.
func TestRecorderTellsOfFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime, err := simruntime.New(simruntime.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtime.Populate(simruntime.Population{Pods: 3, Containers: 1}); err != nil {
			t.Fatal(err)
		}
		dial, stop := serving(t, runtime.Serve)
		full := errors.New("no space left")
		recorder := recording.NewRecorder(broken{full}, recording.Options{})
		written := make(chan error, 1)
		go func() { written <- recorder.Run() }()
		saw := watched(t, append(dial, recorder.DialOptions()...), pipeline.Options{}, false, func() {
			if err := <-written; !errors.Is(err, full) {
				t.Errorf("Run = %v, want %v", err, full)
			}
			time.Sleep(time.Minute) // more answers than wait for a writer that is gone
		})
		if saw.total != 6 {
			t.Errorf("the pipeline has seen %d events, want 6", saw.total)
		}
		stop()
	})
}

// stalled is an output that hangs until it is let go.
type stalled struct{ letGo chan struct{} }

func (s stalled) Write(p []byte) (int, error) { <-s.letGo; return len(p), nil }

func (stalled) Flush() error { return nil }

// TestRecorderNeverHoldsUpEvents has more events than wait for an output that
// hangs: they are read all the same, and the recording fails.
func TestRecorderNeverHoldsUpEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime, err := simruntime.New(simruntime.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		dial, stop := serving(t, runtime.Serve)
		out := stalled{make(chan struct{})}
		recorder := recording.NewRecorder(out, recording.Options{})
		written := make(chan error, 1)
		go func() { written <- recorder.Run() }()
		watched(t, append(dial, recorder.DialOptions()...), pipeline.Options{Events: pipeline.EventsRequire}, false, func() {
			time.Sleep(time.Second)
			for range 29 {
				if _, err := runtime.Populate(simruntime.Population{Pods: 100, Containers: 2}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if s := runtime.Stats().Events; s.Emitted < 17_000 || s.Dropped > 0 {
				t.Errorf("events %+v, want 17000 and more, and none dropped", s)
			}
			close(out.letGo)
		})
		if err := <-written; err == nil || !strings.Contains(err.Error(), "as fast as") {
			t.Errorf("Run = %v, want that the output is too slow", err)
		}
		stop()
	})
}
