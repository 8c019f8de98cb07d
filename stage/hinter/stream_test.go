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

func TestEventsArePassedOnInOrder(t *testing.T) {
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
		f := run(t, pods, events, nil)
		f.want("observations", f.observations(), []pleg.PodUID{"a", "b", "a"})
		f.want("lists", len(pods.asked()), 0)
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
				f := run(t, pods, events, nil)
				f.observations()
				if name == "no pod at all" {
					f.wantRelists(1)
				} else {
					f.want("relists of the pod", pods.asked(), []pleg.PodUID{"a"})
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
		f := run(t, pods, events, nil)
		synctest.Wait() // the stream was drained although nobody takes observations
		if relists, _ := f.lister.reported(); relists == 0 {
			t.Error("what did not fit was not relisted")
		}
		if got := len(f.observations()); got > 5000 {
			t.Errorf("%d observations were kept, want a bounded number", got)
		}
	})
}

func TestStreamIsReportedToTheLister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
			func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
				opened()
				time.Sleep(time.Second)
				return errors.New("unavailable")
			},
		}}
		f := run(t, &fakePods{}, events, nil)
		synctest.Wait()
		f.wantStream(true)
		pass(time.Second)
		f.wantStream(false)
		pass(time.Second)
		f.wantStream(true)
	})
}

func TestBrokenStreamIsReopenedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, func(), func(pleg.Hint)) error { return errors.New("unavailable") }
		panics := func(context.Context, func(), func(pleg.Hint)) error { panic("embedder") }
		events := &fakeEvents{streams: slices.Concat(
			slices.Repeat([]func(context.Context, func(), func(pleg.Hint)) error{broken}, 99),
			[]func(context.Context, func(), func(pleg.Hint)) error{panics},
		)}
		f := run(t, &fakePods{}, events, nil)
		pass(time.Second)
		if n := len(events.tries()); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		pass(time.Hour)
		tries := events.tries()
		f.want("tries", len(tries), 101)
		for i, at := range tries[10:] {
			if wait := at.Sub(tries[9+i]); wait < 5*time.Second || wait > 10*time.Second {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, 10+i)
			}
		}
		f.wantStream(true)
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	without := func(_ context.Context, opened func(), _ func(pleg.Hint)) error {
		opened()
		return fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	}
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without, without}}
		f := run(t, &fakePods{}, events, nil)
		pass(time.Minute)
		f.want("tries in a minute", len(events.tries()), 1)
		f.wantStream(false)
		pass(time.Hour)
		f.want("tries in an hour", len(events.tries()), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{without}}
		f := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Required = true })
		synctest.Wait()
		select {
		case err := <-f.ended:
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
		f := run(t, &fakePods{took: time.Minute}, events, nil)
		f.hinter.RequestRelist("b")
		pass(time.Second)
		f.stop()
		if err := <-f.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, want context.Canceled", err)
		}
		if _, open := <-f.out; open {
			t.Error("out is still open")
		}
	})
}

// counter counts the log lines about a flood.
type counter struct{ atomic.Int64 }

func (c *counter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("too many hints")) {
		c.Add(1)
	}
	return len(line), nil
}

// A flood that full relists replace is logged once, and the next flood again.
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
		f := run(t, &fakePods{}, events, func(o *hinter.Options) { o.Logger = slog.New(slog.NewTextHandler(&floods, nil)) })
		for _, want := range []int{1, 2} {
			pass(35*time.Second + time.Duration(want-1)*3*time.Minute)
			f.want("lines", int(floods.Load()), want)
		}
	})
}
