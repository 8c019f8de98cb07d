package lister_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestRelistsAtOnceAndThenAPeriodAfterTheLastListEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			calls++
			time.Sleep(time.Duration(calls) * 100 * time.Millisecond)
			return []*pleg.Pod{plegtest.Pod(pleg.PodUID(fmt.Sprint(calls)), "")}, nil
		}, instrument.Registry{})
		for i, want := range []struct{ at, sent time.Duration }{
			{0, 100 * time.Millisecond},
			{1100 * time.Millisecond, 1300 * time.Millisecond},
			{2300 * time.Millisecond, 2600 * time.Millisecond},
		} {
			l, sent := b.next(t)
			if at := l.At.Sub(b.start); at != want.at || sent != want.sent {
				t.Errorf("listing %d: began at %v and came at %v, want %v and %v", i, at, sent, want.at, want.sent)
			}
			if len(l.Pods) != 1 || l.Pods[0].UID != pleg.PodUID(fmt.Sprint(i+1)) {
				t.Errorf("listing %d has pods %v, want those of its list", i, l.Pods)
			}
			if got := b.lister.Last(); !got.Success.Equal(l.At) || got.Err != nil {
				t.Errorf("Last after listing %d = %+v, want a success at %v", i, got, l.At)
			}
		}
	})
}

func TestNextRelistWaitsUntilTheListingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) { calls++; return nil, nil }, instrument.Registry{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("lists while nobody took the first = %d, want 1", calls)
		}
		b.next(t)
		if _, sent := b.next(t); sent != time.Minute+period {
			t.Errorf("second listing came at %v, want %v", sent, time.Minute+period)
		}
	})
}

// Each bad answer comes third, after two good ones; the list after it works.
func TestFailedListSendsNothingAndIsRetriedAPeriodLater(t *testing.T) {
	for name, tc := range map[string]struct {
		bad  fakeRuntime
		took time.Duration
		err  error
		text string
	}{
		"error": {
			bad: func(context.Context) ([]*pleg.Pod, error) { return nil, errList },
			err: errList, text: "list pods: the runtime is away",
		},
		"pods beside an error": {
			bad: func(context.Context) ([]*pleg.Pod, error) { return []*pleg.Pod{plegtest.Pod("a", "")}, errList },
			err: errList, text: "list pods: the runtime is away",
		},
		"panic": {
			bad:  func(context.Context) ([]*pleg.Pod, error) { panic("nil map") },
			text: "list pods: panic: nil map",
		},
		"no answer": {
			bad:  func(ctx context.Context) ([]*pleg.Pod, error) { <-ctx.Done(); return nil, ctx.Err() },
			took: timeout, err: context.DeadlineExceeded,
			text: "list pods: no answer within the list timeout of 10s: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				b := newBed(t, func(ctx context.Context) ([]*pleg.Pod, error) {
					if calls++; calls == 3 {
						return tc.bad(ctx)
					}
					return nil, nil
				}, instrument.Registry{})
				b.next(t)
				b.next(t)
				time.Sleep(period + tc.took)
				synctest.Wait()
				last := b.lister.Last()
				if got := last.Success.Sub(b.start); got != period {
					t.Errorf("last success at %v, want that of the second list at %v", got, period)
				}
				if last.Err == nil || last.Err.Error() != tc.text || tc.err != nil && !errors.Is(last.Err, tc.err) {
					t.Errorf("Last().Err = %v, want %q", last.Err, tc.text)
				}
				if _, sent := b.next(t); sent != 3*period+tc.took {
					t.Errorf("next listing came at %v, want %v", sent, 3*period+tc.took)
				}
				if err := b.lister.Last().Err; err != nil {
					t.Errorf("Last().Err after a good list = %v, want nil", err)
				}
			})
		})
	}
}

func TestEndsWithItsContext(t *testing.T) {
	hangs := func(ctx context.Context) ([]*pleg.Pod, error) { <-ctx.Done(); return nil, ctx.Err() }
	answers := func(context.Context) ([]*pleg.Pod, error) { return nil, nil }
	for name, tc := range map[string]struct {
		rt   fakeRuntime
		take int
	}{
		"between two lists": {rt: answers, take: 1},
		"while it sends":    {rt: answers, take: 0},
		"during a list":     {rt: hangs, take: 0},
		"during a list that answers all the same": {
			rt: func(ctx context.Context) ([]*pleg.Pod, error) { <-ctx.Done(); return nil, nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, tc.rt, instrument.Registry{})
				for range tc.take {
					b.next(t)
				}
				synctest.Wait()
				b.stop()
				b.requireEnded(t)
				if tc.take == 0 && name != "while it sends" && !b.lister.Last().Success.IsZero() {
					t.Error("a list that was cut off counts as a success")
				}
				if err := b.lister.Last().Err; err != nil {
					t.Errorf("Last().Err after the end = %v, want nil: the runtime did nothing wrong", err)
				}
			})
		})
	}
}

func TestSkipsMalformedItems(t *testing.T) {
	good, unnamed := plegtest.Pod("good", "c1=running /s1=running"), plegtest.Pod("", "c2=running")
	holes := plegtest.Pod("holes", "c3=running /s3=running")
	holes.Containers = append([]*pleg.Container{nil}, holes.Containers...)
	holes.Sandboxes = append(holes.Sandboxes, nil, nil)
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			return []*pleg.Pod{good, nil, holes, unnamed}, nil
		}, instrument.Registry{})
		l, _ := b.next(t)
		if len(l.Pods) != 2 || l.Pods[0] != good || l.Pods[1].UID != "holes" {
			t.Fatalf("pods = %v, want good and holes", l.Pods)
		}
		clean := l.Pods[1]
		if len(clean.Containers) != 1 || clean.Containers[0].ID != "c3" || len(clean.Sandboxes) != 1 || clean.Sandboxes[0].ID != "s3" {
			t.Errorf("cleaned pod = %+v, want c3 and s3 only", clean)
		}
		if len(holes.Containers) != 2 || len(holes.Sandboxes) != 3 {
			t.Errorf("the runtime's own pod was changed: %+v", holes)
		}
	})
}

func TestPassesAGoodListOnAsItIs(t *testing.T) {
	pods := []*pleg.Pod{plegtest.Pod("a", ""), plegtest.Pod("b", "c1=exited")}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) { return pods, nil }, instrument.Registry{})
		if l, _ := b.next(t); len(l.Pods) != 2 || &l.Pods[0] != &pods[0] {
			t.Errorf("the listing is a copy of the runtime's list, want the list itself")
		}
	})
}
