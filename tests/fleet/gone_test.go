package fleet_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The states of a node stay as long as its agent lives, however quiet it is, and disappear when
// it is gone.
func TestStatesOfAGoneNodeExpire(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{stateTTL: 4 * time.Second})
	b := startAgent(t, s.URL, "node-b", agentOptions{})
	a.steps(20)
	b.steps(20)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	js := jetStream(t, connect(t, s.URL))
	bucket, err := js.KeyValue(t.Context(), fleet.StateBucket)
	kit.Must(t, err)
	written := make(map[uint64]bool) // the revisions of the node's key
	until(t, func() error {
		node, err := bucket.Get(t.Context(), "test_example.node-a")
		kit.Must(t, err)
		if written[node.Revision()] = true; len(written) < 4 {
			return fmt.Errorf("the states were written %d times, want 4", len(written))
		}
		return nil
	})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	a.stop()
	until(t, func() error {
		if left := keysOf(t, js, "test_example.node-a", "test_example.node-a.>"); len(left) > 0 {
			return fmt.Errorf("%d keys of the node are left", len(left))
		}
		return nil
	})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, b).converges()
	a.publish(agentOptions{})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
}

// A node that is gone can be forgotten; one that publishes, or that nobody knows, cannot.
func TestForget(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{a: agentOptions{limits: fleet.Limits{Parts: parts}}})
	states := openStates(t, f.server.URL)
	if err := states.Forget(t.Context(), "node-a"); !errors.Is(err, fleet.ErrPublishing) {
		t.Errorf("forget a node that publishes: %v, want %v", err, fleet.ErrPublishing)
	}
	f.a.stop()
	if err := states.Forget(t.Context(), "node-a"); err != nil {
		t.Error(err)
	}
	for _, nodes := range [][]string{{"node-a"}, {f.b.name, "node-a"}} {
		if err := states.Check(t.Context(), nodes); !errors.Is(err, fleet.ErrUnknownNode) {
			t.Errorf("check %v: %v, want %v", nodes, err, fleet.ErrUnknownNode)
		}
	}
	if err := states.Check(t.Context(), []string{f.b.name}); err != nil {
		t.Error(err)
	}
	if err := states.Forget(t.Context(), "node-a"); !errors.Is(err, fleet.ErrUnknownNode) {
		t.Errorf("forget it again: %v, want %v", err, fleet.ErrUnknownNode)
	}
	watch(t, f.server.URL, fleet.WatchOptions{Replay: true}, f.b).converges()
	f.a.publish(agentOptions{}) // it was not gone for ever
	f.a.steps(5)
	f.late()
}

// A mistyped name is an error, not an empty table.
func TestProgramNamesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "n1", agentOptions{})
	a.steps(5)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	for args, want := range map[string]string{
		"pods --cluster prud":                               `no node of cluster "prud": it has not published`,
		"pods --cluster test.example --node n2":             `node "n2" of cluster "test.example": it has not published`,
		"pods --watch --cluster test.example --node n2":     `node "n2" of cluster "test.example": it has not published`,
		"doctor --cluster prud":                             `no node of cluster "prud": it has not published`,
		"events --replay --cluster prud":                    `no node of cluster "prud": it has not published`,
		"events --cluster test.example --node n1 --node n2": `node "n2" of cluster "test.example": it has not published`,
		"fleet forget --cluster test.example n1":            "an agent publishes as this node",
		"fleet forget --cluster test.example n2":            `node "n2" of cluster "test.example": it has not published`,
		"fleet create --max-age 1h":                         "stream pleg-events exists with",
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
