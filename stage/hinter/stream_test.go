package hinter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

// broken is a stream that cannot be opened.
func broken(context.Context, func(), func(pleg.Hint)) error { return errors.New("unavailable") }

// lasting is a stream that works for a time.
func lasting(d time.Duration) stream {
	return func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
		opened()
		time.Sleep(d)
		return errors.New("unavailable")
	}
}

// newHint returns a complete CRI event.
func newHint(uid pleg.PodUID) pleg.Hint {
	return pleg.Hint{UID: uid, At: time.Now(), Container: "c", Pod: &pleg.Pod{UID: uid}}
}

func TestIncompleteCRIEventRelistsThePod(t *testing.T) {
	for name, breakHint := range map[string]func(*pleg.Hint){
		"no statuses":    func(h *pleg.Hint) { h.Pod = nil },
		"no time":        func(h *pleg.Hint) { h.At = time.Time{} },
		"in the future":  func(h *pleg.Hint) { h.At = h.At.Add(time.Hour) },
		"no pod UID":     func(h *pleg.Hint) { h.UID = "" },
		"state unknown":  func(h *pleg.Hint) { h.Pod, h.State = nil, pleg.StateUnknown },
		"removed, empty": func(h *pleg.Hint) { h.Pod, h.Removed = nil, true },
		"nil container":  func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "a", Containers: []*pleg.Container{nil}} },
		"nil sandbox":    func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "a", Sandboxes: []*pleg.Container{nil}} },
		"another pod":    func(h *pleg.Hint) { h.Pod = &pleg.Pod{UID: "b"} },
		"nil container status": func(h *pleg.Hint) {
			h.Status = &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{nil}}
		},
		"nil sandbox status": func(h *pleg.Hint) {
			h.Status = &pleg.PodStatus{UID: "a", Sandboxes: []*pleg.SandboxStatus{nil}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := &fakePods{}
			events := streamOf(func(hint func(pleg.Hint)) {
				h := newHint("a")
				breakHint(&h)
				hint(h)
			})
			testHinter(t, pods, events, func(f *fixture) {
				f.observations()
				if name == "no pod UID" {
					f.requireRelists(1)
				} else {
					f.require("relists of the pod", pods.relisted(), []pleg.PodUID{"a"})
				}
			})
		})
	}
}

func TestManyCRIEventsAreBounded(t *testing.T) {
	const announced = 100_000
	events := streamOf(func(hint func(pleg.Hint)) {
		for i := range announced {
			hint(newHint(pleg.PodUID(fmt.Sprint(i))))
		}
	})
	testHinter(t, &fakePods{took: time.Second}, events, func(f *fixture) {
		synctest.Wait() // the hinter reads the stream before any observation is received
		if f.lister.relists.Load() == 0 {
			t.Error("no relist was requested for the excess CRI events")
		}
		if got := len(f.observations()); got > 5000 {
			t.Errorf("%d observations, want at most 5000", got)
		}
	})
}

func TestBrokenStreamIsReopenedWithBackoff(t *testing.T) {
	panics := func(context.Context, func(), func(pleg.Hint)) error { panic("embedder") }
	events := &fakeEvents{streams: append(slices.Repeat([]stream{broken}, 99), panics)}
	testHinter(t, &fakePods{}, events, func(f *fixture) {
		sleep(time.Second)
		if n := len(events.tries()); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		sleep(time.Hour)
		tries := events.tries()
		f.require("tries", len(tries), 101)
		for i, at := range tries[10:] {
			if wait := at.Sub(tries[9+i]); wait < 5*time.Second || wait > 10*time.Second {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, 10+i)
			}
		}
		f.requireStream(true)
	})
}

// A stream that worked is reopened at once, however long the runtime was away before.
func TestBackoffStartsAgainAfterAStreamThatWorked(t *testing.T) {
	events := &fakeEvents{streams: append(slices.Repeat([]stream{broken}, 20), lasting(time.Minute))}
	testHinter(t, &fakePods{}, events, func(*fixture) {
		sleep(time.Hour)
		tries := events.tries()
		if wait := tries[21].Sub(tries[20]) - time.Minute; wait > 100*time.Millisecond {
			t.Errorf("reopened after %v, want at most 100 ms", wait)
		}
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	without := func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
		opened()
		return fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	}
	events := &fakeEvents{streams: []stream{without, without}}
	testHinter(t, &fakePods{}, events, func(f *fixture) {
		sleep(time.Minute)
		f.require("tries in a minute", len(events.tries()), 1)
		f.requireStream(false)
		sleep(time.Hour)
		f.require("tries in an hour", len(events.tries()), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []stream{without}}
		f := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Required = true })
		synctest.Wait()
		if len(f.ended) == 0 {
			t.Fatal("Run continues without the required CRI events")
		}
		if err := <-f.ended; !errors.Is(err, pleg.ErrNoEvents) {
			t.Errorf("Run ended with %v, want ErrNoEvents", err)
		}
	})
}
