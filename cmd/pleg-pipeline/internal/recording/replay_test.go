package recording_test

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// following are the options of a pipeline that follows CRI events.
var following = pipeline.Options{Events: pipeline.EventsRequire, RelistPeriodWithEvents: 10 * time.Second}

var replayCases = map[string]struct {
	scenario
	// statesOnly: only the caches are compared. Whether a call is retried shortly
	// before or after the next list depends on milliseconds, and so does the merging of a pod's
	// changes.
	statesOnly bool
	hung       bool // calls hang until the end; the replay ends anyway
	inSandbox  bool // the status of a sandbox carries the statuses of its containers
}{
	"churn":           {scenario: scenario{pods: 8, play: churn(8, 60)}},
	"storm":           {statesOnly: true, scenario: scenario{pods: 30, play: churn(100, 100)}},
	"errors":          {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Code: 14, Probability: 0.3})}},
	"errors of lists": {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ListContainers", Code: 14, Probability: 0.3})}},
	"empty answers":   {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.NilStatus, Probability: 0.3})}},
	"hung calls":      {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Hang: true, Probability: 0.1})}},
	"hung container":  {statesOnly: true, hung: true, scenario: scenario{pods: 5, play: churnUntilHung("ContainerStatus")}},
	"hung list":       {statesOnly: true, hung: true, scenario: scenario{pods: 5, play: churnUntilHung("ListContainers")}},
	"one call":        {inSandbox: true, scenario: scenario{pods: 12, play: churn(8, 60)}},
	// The recording contains few lists of all pods, and lists of single pods.
	"events": {statesOnly: true, scenario: scenario{pods: 15, options: following, play: churnUntilList}},
	"one call, events": {
		inSandbox: true, statesOnly: true, scenario: scenario{pods: 15, options: following, play: churnUntilList},
	},
}

// TestReplayEqualsRecordedRun records a pipeline on a runtime that changes. A
// pipeline on the recording must observe the same events of each pod in the same
// order, and fill the same cache.
func TestReplayEqualsRecordedRun(t *testing.T) {
	for name, test := range replayCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.simulated = simruntime.Options{Seed: 5, Faults: simruntime.BusyNode(), StatusesInSandbox: test.inSandbox}
				want, data := test.record(t)
				if pending := strings.Contains(string(data), `"pending":true`); test.hung && !pending {
					t.Error("nothing is pending in the recording")
				}
				if want.total < 100 && !test.hung {
					t.Fatalf("only %d events were recorded, which proves nothing", want.total)
				}
				got := replayed(t, data, pipeline.Options{}, 0)
				if test.hung {
					forgetErrors(want, got)
				}
				if test.statesOnly {
					want.events, got.events = nil, nil
				}
				got.requireEqual(t, want)
			})
		})
	}
}

// TestReplaysOfOneRecordingAreEqual replays a recording to pipelines that list at other times.
func TestReplaysOfOneRecordingAreEqual(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		want, data := scenario{
			pods: 12, simulated: simruntime.Options{Seed: 5, Faults: simruntime.BusyNode()}, play: churn(8, 60),
		}.record(t)
		if want.total < 100 {
			t.Fatalf("only %d events were recorded, which proves nothing", want.total)
		}
		for name, replay := range map[string]struct {
			pipeline.Options
			data []byte
			late time.Duration
		}{
			"same period":     {},
			"longer period":   {Options: pipeline.Options{RelistPeriod: 3 * time.Second}},
			"shorter period":  {Options: pipeline.Options{RelistPeriod: 70 * time.Millisecond}},
			"first list late": {late: time.Hour},
			"busy":            {data: delayed(t, data)},
		} {
			t.Log(name)
			if replay.data == nil {
				replay.data = data
			}
			replayed(t, replay.data, replay.Options, replay.late).requireEqual(t, want)
		}
	})
}

// delayed returns a recording in which each status was asked for 5 ms later, as on a busy machine.
func delayed(t *testing.T, data []byte) []byte {
	t.Helper()
	at := regexp.MustCompile(`(?m)^\{"at":"([^"]+)"(.*"method":"\w+Status")`)
	return at.ReplaceAllFunc(data, func(text []byte) []byte {
		parts := at.FindSubmatch(text)
		d, err := time.ParseDuration(string(parts[1]))
		kit.Must(t, err)
		return fmt.Appendf(nil, `{"at":"%v"%s`, d+5*time.Millisecond, parts[2])
	})
}

// forgetErrors removes from want the pods whose inspection failed: their errors depend on which call
// of the pod is made first.
func forgetErrors(want, got observed) {
	maps.DeleteFunc(want.states, func(uid pleg.PodUID, state string) bool {
		failed := strings.Contains(state, "rpc error")
		if failed && strings.Contains(got.states[uid], "rpc error") {
			delete(got.states, uid)
		}
		return failed
	})
}

// churnUnder changes the runtime while some calls fail, and then lets it recover.
func churnUnder(f simruntime.Fault) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, runtime *simruntime.Runtime) {
		end := runtime.Inject(f)
		churn(8, 60)(t, runtime)
		end()
		time.Sleep(20 * time.Second)
	}
}

func churnUntilList(t *testing.T, runtime *simruntime.Runtime) {
	runtime.Inject(simruntime.Fault{RPC: "GetContainerEvents", Loss: 0.2})
	runtime.BreakEvents() // a stream meets the fault when it is opened
	churn(5, 80)(t, runtime)
	time.Sleep(11 * time.Second) // until a list has shown the last changes
}

func churnUntilHung(rpc string) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, runtime *simruntime.Runtime) {
		churn(8, 40)(t, runtime)
		runtime.Inject(simruntime.Fault{RPC: rpc, Hang: true})
		if rpc == "ContainerStatus" {
			kit.Must(t, runtime.Churn(t.Context(), simruntime.ChurnOptions{Seed: 9, Rate: 8, Actions: 40}))
			time.Sleep(5 * time.Second)
		}
		time.Sleep(2500 * time.Millisecond)
	}
}

// TestWindowHasTheLastMinutes replays the content of a window after twelve minutes. A pipeline on
// it must end with the same cache, although it sees only the last minutes.
func TestWindowHasTheLastMinutes(t *testing.T) {
	long := churn(0.25, 180)
	polling := pipeline.Options{RelistPeriod: 4 * time.Second}
	for name, test := range map[string]struct {
		scenario
		least, most time.Duration
	}{
		"lists": {scenario{pods: 15, play: long, options: polling}, 6 * time.Minute, 9 * time.Minute},
		"a container that hangs": {scenario{pods: 5, play: func(t *testing.T, runtime *simruntime.Runtime) {
			churn(0.25, 125)(t, runtime)
			churnUntilHung("ContainerStatus")(t, runtime)
		}, options: polling}, 6 * time.Minute, 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.simulated, test.window = simruntime.Options{Seed: 5, Faults: simruntime.BusyNode()}, true
				want, data := test.record(t)
				r, err := recording.Read(t.Context(), bytes.NewReader(data))
				kit.Must(t, err)
				if r.Length < test.least || r.Length > test.most || r.Cut != "" || r.Runtime == nil {
					t.Errorf("it has %v of %v (%s), want %v to %v", r.Length, r.Runtime, r.Cut, test.least, test.most)
				}
				got := replayed(t, data, test.options, 0)
				forgetErrors(want, got)
				want.events, got.events = nil, nil // the replay shows only the last containers
				got.requireEqual(t, want)
			})
		})
	}
}
