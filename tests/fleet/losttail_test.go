package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Acknowledged is not yet on disk: in a power failure the server loses the last messages, up to two
// minutes of them. What follows is a Gap or a new publication, never a silent hole: for a
// watch that runs, for one that resumes and for one that comes late, also when other messages
// already have the numbers of those that are lost.
func TestLostTailIsNotSilent(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string][]string{
		"events and states": {fleet.EventStream, "KV_" + fleet.StateBucket},
		"events":            {fleet.EventStream},
		"states":            {"KV_" + fleet.StateBucket},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, saved := t.TempDir(), t.TempDir()
			s, err := natsd.New(dir, "")
			kit.Must(t, err)
			runServer(t, s)
			store := filepath.Join(dir, "jetstream", "$G", "streams")
			a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
			c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
			a.steps(30)
			b.steps(30)
			c.converges()
			s.Kill()
			setStreams(t, streams, saved, store)
			kit.Must(t, s.Start(t.Context()))
			a.steps(40)
			c.converges()
			c.stall.Lock()
			release := sync.OnceFunc(c.stall.Unlock)
			defer release()
			last := c.newest()
			s.Kill()
			setStreams(t, streams, store, saved)
			kit.Must(t, s.Start(t.Context()))
			until(t, a.hasPublishedAll)
			b.steps(1) // its message has the number of one that is lost
			late := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
			late.converges()
			for range 40 {
				a.steps(1)
				late.converges()
			}
			release()
			c.converges()
			watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
			if slices.Contains(streams, fleet.EventStream) {
				watch(t, s.URL, fleet.WatchOptions{After: &last}, a, b).converges()
			}
		})
	}
}

// hasPublishedAll returns an error unless the last message of the node has its last event.
func (a *agent) hasPublishedAll() error {
	stream, err := jetStream(a.t, a.conn).Stream(a.t.Context(), fleet.EventStream)
	if err != nil {
		return err
	}
	m, err := stream.GetLastMsgForSubject(a.t.Context(), "pleg.v1.ev.test_example."+a.name)
	if err != nil {
		return err
	}
	events := eventsIn(a.t, m.Data)
	got, want := events[len(events)-1].Seq, uint64(len(a.published(a.node.Epoch())))
	if got != want {
		return fmt.Errorf("the last event of %s in the stream is %d, want %d", a.name, got, want)
	}
	return nil
}

// setStreams replaces streams in one store by those in another.
func setStreams(t *testing.T, streams []string, to, from string) {
	t.Helper()
	for _, name := range streams {
		kit.Must(t, os.RemoveAll(filepath.Join(to, name)))
		kit.Must(t, os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))))
	}
}
