package recording_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func nodeProfile(t *testing.T) simruntime.Profile {
	t.Helper()
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	kit.Must(t, err)
	return profile
}

// following are the options of a pipeline that follows CRI events.
var following = pipeline.Options{Events: pipeline.EventsRequire, RelistPeriodWithEvents: 10 * time.Second}

// rarely is following with no more lists while a new stream earns trust: which calls a
// list leads to depends on milliseconds.
var rarely = pipeline.Options{Events: pipeline.EventsRequire, RelistPeriod: 10 * time.Second, RelistPeriodWithEvents: 10 * time.Second}

var replayCases = map[string]struct {
	scenario
	replay pipeline.Options
	// statesOnly: only the caches are compared. Whether a call is retried shortly
	// before or after the next list depends on milliseconds, and so does which changes of a
	// pod are merged.
	statesOnly bool
	// unannounced: a list may report a change before an event does. Its time decides
	// which container is reported first.
	unannounced bool
	hung        bool // calls hang until the end, in the replay too, which still ends
	inSandbox   bool // the status of a sandbox has those of its containers
}{
	"unary lists":          {scenario: scenario{pods: 8, unary: true, play: churn(8, 60)}},
	"storm":                {statesOnly: true, scenario: scenario{pods: 30, play: churn(100, 100)}},
	"errors":               {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Code: 14, Probability: 0.3})}},
	"errors of lists":      {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "StreamContainers", Code: 14, Probability: 0.3})}},
	"empty answers":        {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.NilStatus, Probability: 0.3})}},
	"hung calls":           {statesOnly: true, scenario: scenario{pods: 12, play: churnUnder(simruntime.Fault{RPC: "ContainerStatus", Hang: true, Probability: 0.1})}},
	"hung container":       {statesOnly: true, hung: true, scenario: scenario{pods: 5, play: churnUntilHung("ContainerStatus")}},
	"hung list":            {statesOnly: true, hung: true, scenario: scenario{pods: 5, play: churnUntilHung("StreamContainers")}},
	"one call":             {inSandbox: true, scenario: scenario{pods: 12, play: churn(8, 60)}},
	"one call, all events": {inSandbox: true, replay: following, scenario: scenario{pods: 15, options: following, play: churn(20, 70)}},
	"one call, events for a polling pipeline": {
		inSandbox: true, statesOnly: true, scenario: scenario{pods: 15, options: pipeline.Options{Events: pipeline.EventsRequire}, play: churnSeed(3, 5, 70)},
	},

	"all events":        {replay: following, scenario: scenario{pods: 15, options: following, play: churn(20, 70)}},
	"repeated events":   {replay: following, scenario: scenario{pods: 15, options: following, play: churnRepeated}},
	"unannounced":       {replay: following, unannounced: true, scenario: scenario{pods: 15, options: following, play: churnUntilList}},
	"streams that fail": {replay: rarely, unannounced: true, scenario: scenario{pods: 15, options: rarely, play: churnWithBreaks}},
	// The recording has few lists, and its lists show what the events announced.
	"events for a polling pipeline": {
		statesOnly: true, scenario: scenario{pods: 15, options: pipeline.Options{Events: pipeline.EventsRequire}, play: churnSeed(3, 5, 70)},
	},
}

// TestReplayEqualsRecordedRun records a pipeline on a runtime that changes. A
// pipeline on the recording must observe the same events of each pod in the same
// order, and have the same cache.
func TestReplayEqualsRecordedRun(t *testing.T) {
	for name, test := range replayCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.simulated = simruntime.Options{Seed: 5, Profile: nodeProfile(t), StatusesInSandbox: test.inSandbox}
				want, data := test.record(t)
				if pending := strings.Contains(string(data), `"pending":true`); test.hung && !pending {
					t.Error("nothing is pending in the recording")
				}
				if want.total < 100 && !test.hung {
					t.Fatalf("only %d events were recorded, which proves nothing", want.total)
				}
				got := replayed(t, data, 1, test.replay, 0)
				if test.hung {
					forgetErrors(want, got)
				}
				if test.statesOnly {
					want.events, got.events = nil, nil
				}
				if test.unannounced {
					want, got = want.byContainer(), got.byContainer()
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
			pods: 12, simulated: simruntime.Options{Seed: 5, Profile: nodeProfile(t)}, play: churn(8, 60),
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
			"following":       {Options: pipeline.Options{Events: pipeline.EventsAuto}},
		} {
			t.Log(name)
			if replay.data == nil {
				replay.data = data
			}
			replayed(t, replay.data, 1, replay.Options, replay.late).requireEqual(t, want)
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

// forgetErrors removes the pods whose inspection failed in want: which call of a pod is made
// first, and the error of one that the client cancels, differ.
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
		id, err := runtime.Inject(f)
		kit.Must(t, err)
		churn(8, 60)(t, runtime)
		runtime.Clear(id)
		time.Sleep(20 * time.Second)
	}
}

func churnRepeated(t *testing.T, runtime *simruntime.Runtime) {
	if err := runtime.SetEventFaults(simruntime.EventFaults{Duplicate: 0.3}); err != nil {
		t.Fatal(err)
	}
	churn(20, 70)(t, runtime)
}

func churnUntilList(t *testing.T, runtime *simruntime.Runtime) {
	if err := runtime.SetEventFaults(simruntime.EventFaults{Loss: 0.2}); err != nil {
		t.Fatal(err)
	}
	churn(5, 80)(t, runtime)
	time.Sleep(11 * time.Second) // until a list has shown the rest
}

func churnWithBreaks(t *testing.T, runtime *simruntime.Runtime) {
	for seed := range uint64(4) {
		churnSeed(seed, 20, 25)(t, runtime)
		// The stream is opened again at a random time. A list before that shows
		// changes in an order of its own, so nothing may change then.
		runtime.BreakEvents()
		time.Sleep(3 * time.Second)
	}
}

func churnUntilHung(rpc string) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, runtime *simruntime.Runtime) {
		churnSeed(3, 8, 40)(t, runtime)
		if _, err := runtime.Inject(simruntime.Fault{RPC: rpc, Hang: true}); err != nil {
			t.Fatal(err)
		}
		if rpc == "ContainerStatus" {
			churnSeed(9, 8, 40)(t, runtime)
		}
		time.Sleep(2500 * time.Millisecond)
	}
}
