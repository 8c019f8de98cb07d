package hinter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func whole(uid pleg.PodUID) pleg.Hint {
	return pleg.Hint{UID: uid, At: time.Now(), Container: "c", Pod: &pleg.Pod{UID: uid}}
}

func TestEventsAreHandedOnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{}
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
				opened()
				hint(whole("a"))
				hint(whole("b"))
				hint(whole("a"))
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		b := run(t, pods, events, nil)
		b.want("observations", b.take(), []pleg.PodUID{"a", "b", "a"})
		b.want("lists", len(pods.asked()), 0)
	})
}

func TestIncompleteEventRelistsThePod(t *testing.T) {
	future := whole("a")
	for name, spoil := range map[string]func(*pleg.Hint){
		"no statuses":    func(h *pleg.Hint) { h.Pod = nil },
		"no time":        func(h *pleg.Hint) { h.At = time.Time{} },
		"in the future":  func(h *pleg.Hint) { h.At = h.At.Add(time.Hour) },
		"no pod at all":  func(h *pleg.Hint) { h.UID = "" },
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
			synctest.Test(t, func(t *testing.T) {
				pods := &fakePods{}
				events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
					func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
						h := future
						h.At = time.Now()
						spoil(&h)
						hint(h)
						<-ctx.Done()
						return context.Cause(ctx)
					},
				}}
				b := run(t, pods, events, nil)
				b.take()
				if name == "no pod at all" {
					b.wantRelists(1)
				} else {
					b.want("relists of the pod", pods.asked(), []pleg.PodUID{"a"})
				}
			})
		})
	}
}

func TestFloodIsBounded(t *testing.T) {
	const flood = 100_000
	synctest.Test(t, func(t *testing.T) {
		pods := &fakePods{took: time.Second}
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
				for i := range flood {
					hint(whole(pleg.PodUID(fmt.Sprint(i))))
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		b := run(t, pods, events, nil)
		synctest.Wait() // the stream was drained although nobody takes observations
		if relists, _ := b.lister.told(); relists == 0 {
			t.Error("what did not fit was not relisted")
		}
		if got := len(b.take()); got > 5000 {
			t.Errorf("%d observations were kept, want a bounded number", got)
		}
	})
}

func TestStreamCountsAsUpOnceProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, &fakePods{}, &fakeEvents{}, nil)
		synctest.Wait()
		b.wantStream(false)
		pass(time.Second)
		b.wantStream(true)
	})
}

func TestBrokenStreamIsOpenedAgainForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, func(), func(pleg.Hint)) error { return errors.New("unavailable") }
		panics := func(context.Context, func(), func(pleg.Hint)) error { panic("embedder") }
		events := &fakeEvents{streams: slices.Concat(
			slices.Repeat([]func(context.Context, func(), func(pleg.Hint)) error{broken}, 99),
			[]func(context.Context, func(), func(pleg.Hint)) error{panics},
		)}
		b := run(t, &fakePods{}, events, nil)
		pass(time.Second)
		if n := len(events.tries()); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		pass(time.Hour)
		tries := events.tries()
		b.want("tries", len(tries), 101)
		for i, at := range tries[10:] {
			if wait := at.Sub(tries[9+i]); wait < 5*time.Second || wait > 10*time.Second {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, 10+i)
			}
		}
		b.wantStream(true)
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	without := func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
		opened()
		return fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	}
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without, without}}
		b := run(t, &fakePods{}, events, nil)
		pass(time.Minute)
		b.want("tries in a minute", len(events.tries()), 1)
		b.wantStream(false)
		pass(time.Hour)
		b.want("tries in an hour", len(events.tries()), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without}}
		b := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Required = true })
		synctest.Wait()
		select {
		case err := <-b.ended:
			if !errors.Is(err, pleg.ErrNoEvents) {
				t.Errorf("Run ended with %v, want ErrNoEvents", err)
			}
		default:
			t.Error("Run goes on without the required events")
		}
	})
}

func TestRunEndsInTheMiddleOfEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
				opened()
				for ctx.Err() == nil {
					hint(whole("a"))
					time.Sleep(time.Millisecond)
				}
				return context.Cause(ctx)
			},
		}}
		b := run(t, &fakePods{took: time.Minute}, events, nil)
		b.hinter.RequestRelist("b")
		pass(time.Second)
		b.stop()
		if err := <-b.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, want context.Canceled", err)
		}
		if _, open := <-b.out; open {
			t.Error("out is still open")
		}
	})
}

// counter counts the log lines that tell of a flood.
type counter struct{ atomic.Int64 }

func (c *counter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("hints cannot be followed one by one")) {
		c.Add(1)
	}
	return len(line), nil
}

// A flood that lists have to stand in for is logged once, and the next one again.
func TestFloodIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var floods counter
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
				for _, quiet := range []time.Duration{30 * time.Second, 2 * time.Minute} {
					for range 100 {
						hint(pleg.Hint{Container: "c"})
					}
					time.Sleep(quiet)
					hint(pleg.Hint{Container: "c"})
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		b := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Logger = slog.New(slog.NewTextHandler(&floods, nil)) })
		for _, want := range []int{1, 2} {
			pass(35*time.Second + time.Duration(want-1)*3*time.Minute)
			b.want("lines", int(floods.Load()), want)
		}
	})
}
