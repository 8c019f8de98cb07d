package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// An acknowledged message may not be on disk yet: in a power failure the server loses up to two
// minutes of messages. A Gap or a new publication follows, never a silent hole: for a watch that
// runs, resumes or comes late, also when other messages already got the numbers of the lost
// messages, and are removed again.
func TestLostTailIsNotSilent(t *testing.T) {
	t.Parallel()
	dir, saved := t.TempDir(), t.TempDir()
	s := natsd.New(t, dir, "")
	runServer(t, s)
	store := filepath.Join(dir, "jetstream", "$G", "streams")
	a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(30)
	b.steps(30)
	c.converges()
	s.Kill()
	kit.Must(t, setStreams(saved, store))
	kit.Must(t, s.Start(t.Context()))
	a.steps(40)
	c.converges()
	c.stall.Lock()
	release := sync.OnceFunc(c.stall.Unlock)
	defer release()
	last := c.newest()
	s.Kill()
	kit.Must(t, setStreams(store, saved))
	kit.Must(t, s.Start(t.Context()))
	until(t, a.hasPublishedAll)
	b.steps(1) // the message of this step gets the number of a lost message
	late := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	late.converges()
	for range 40 {
		a.steps(1)
		late.converges()
	}
	release()
	c.converges()
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	watch(t, s.URL, fleet.WatchOptions{After: &last}, a, b).converges()
	kit.Must(t, streamAt(t, s.URL).DeleteMsg(t.Context(), messageOf(t, last)))
	watch(t, s.URL, fleet.WatchOptions{After: &last}, a, b).converges()
}

// hasPublishedAll returns an error unless the last message of the node contains its last event: a state
// contains that event's number too, and other messages may follow.
func (a *agent) hasPublishedAll() error {
	stream, err := jetStream(a.t, a.conn).Stream(a.t.Context(), streams[0])
	if err != nil {
		return err
	}
	m, err := stream.GetLastMsgForSubject(a.t.Context(), "pleg.v2.test_example."+a.name+".>")
	if err != nil {
		return err
	}
	got, want := eventIn(a.t, m.Data).Seq, uint64(len(a.published(a.node.Epoch())))
	if got != want || bytes.Contains(m.Data, []byte("pod.state.v1")) {
		return fmt.Errorf("the last event of %s in the stream is %d, want %d", a.name, got, want)
	}
	return nil
}

// setStreams replaces the stream in one store by the stream in another, or by none if it was deleted there.
func setStreams(to, from string) error {
	err := os.RemoveAll(filepath.Join(to, streams[0]))
	if _, missing := os.Stat(filepath.Join(from, streams[0])); missing != nil {
		return err
	}
	return errors.Join(err, os.CopyFS(filepath.Join(to, streams[0]), os.DirFS(filepath.Join(from, streams[0]))))
}
