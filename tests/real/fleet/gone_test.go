package fleet_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// The states of a node stay as long as its agent lives, however quiet it is, and disappear when
// it is gone.
func TestStatesOfAGoneNodeExpire(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{limits: fleet.Limits{MaxAge: 4 * time.Second}})
	a.steps(20)
	first := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	first.converges()
	stream := streamAt(t, s.URL)
	state, gaps, live := stateOf(t, stream), first.gapsSoFar(), uint64(1+len(a.node.Truth()))
	until(t, func() error { // each state has expired four times
		now := stateOf(t, stream)
		if now.NumSubjects < live {
			t.Errorf("%d states are left, want those of %d subjects: each comes again before it expires", now.NumSubjects, live)
		}
		if want := state.LastSeq + 4*state.NumSubjects; now.FirstSeq < want {
			return fmt.Errorf("the messages before %d have expired, want those before %d", now.FirstSeq, want)
		}
		return nil
	})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	first.hasGaps(gaps)
	a.stop()
	until(t, func() error {
		if n := stateOf(t, stream).Msgs; n > 0 {
			return fmt.Errorf("%d messages are left", n)
		}
		return nil
	})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}).converges()
	a.publish(agentOptions{})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
}

// "fleet forget --silent-for" removes the nodes whose agents have not been seen for that time, and no others.
func TestForgetSilentFor(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	alive, gone := startAgent(t, s.URL, "n1", agentOptions{first: 5}), startAgent(t, s.URL, "n2", agentOptions{first: 5})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, alive, gone).converges()
	gone.stop()
	forget := func(most string) string {
		out, err := command(t, "fleet", "forget", "--silent-for", most, "--fleet", s.URL, "--cluster", cluster).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := forget("1h"); out != "" {
		t.Errorf("seen within the hour: %s", out)
	}
	until(t, func() error {
		if out := forget("1s"); out != "n2 is forgotten\n" {
			return fmt.Errorf("not seen for a second: %q", out)
		}
		return nil
	})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, alive).converges()
}

// A mistyped name is an error, not an empty table.
func TestProgramNamesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "n1", agentOptions{})
	a.steps(5)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	for args, want := range map[string]string{
		"pods --cluster prud":                               `nothing has been published for this cluster yet`,
		"pods --cluster test.example --node n2":             `node "n2" of cluster "test.example" has not published`,
		"doctor --cluster prud":                             `nothing has been published for this cluster yet`,
		"events --cluster test.example --node n1 --node n2": `node "n2" of cluster "test.example" has not published`,
		"fleet forget --cluster test.example n1":            "an agent publishes as this node",
		"fleet forget --cluster test.example n2":            `node "n2" of cluster "test.example" has not published`,
		"fleet create --cluster test.example --max-age 1h":  "stream pleg-v2-test_example exists with",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			out, err := command(t, append(strings.Fields(args), "--fleet", s.URL)...).CombinedOutput()
			if failed := new(exec.ExitError); !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(string(out), want) {
				t.Errorf("%v, want exit status 1 and %q:\n%s", err, want, out)
			}
		})
	}
}
