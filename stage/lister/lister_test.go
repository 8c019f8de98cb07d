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
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			calls++
			time.Sleep(time.Duration(calls) * 100 * time.Millisecond)
			return []*pleg.Pod{plegtest.Pod(pleg.PodUID(fmt.Sprint(calls)), "")}, nil
		}, instrument.Registry{})
		for i, want := range []struct{ at, sent time.Duration }{
			{0, 100 * time.Millisecond},
			{1100 * time.Millisecond, 1300 * time.Millisecond},
			{2300 * time.Millisecond, 2600 * time.Millisecond},
		} {
			l, sent := f.next(t)
			if at := l.At.Sub(f.start); at != want.at || sent != want.sent {
				t.Errorf("listing %d: began at %v and came at %v, want %v and %v", i, at, sent, want.at, want.sent)
			}
			if len(l.Pods) != 1 || l.Pods[0].UID != pleg.PodUID(fmt.Sprint(i+1)) {
				t.Errorf("listing %d has pods %v, want those of its list", i, l.Pods)
			}
			if got := f.lister.Last(); !got.Success.Equal(l.At) || got.Err != nil {
				t.Errorf("Last after listing %d = %+v, want a success at %v", i, got, l.At)
			}
		}
	})
}

func TestNextRelistWaitsUntilTheListingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) { calls++; return nil, nil }, instrument.Registry{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("lists while nobody took the first = %d, want 1", calls)
		}
		f.next(t)
		if _, sent := f.next(t); sent != time.Minute+period {
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
				f := newFixture(t, func(ctx context.Context) ([]*pleg.Pod, error) {
					if calls++; calls == 3 {
						return tc.bad(ctx)
					}
					return nil, nil
				}, instrument.Registry{})
				f.next(t)
				f.next(t)
				time.Sleep(period + tc.took)
				synctest.Wait()
				last := f.lister.Last()
				if got := last.Success.Sub(f.start); got != period {
					t.Errorf("last success at %v, want that of the second list at %v", got, period)
				}
				if last.Err == nil || last.Err.Error() != tc.text || tc.err != nil && !errors.Is(last.Err, tc.err) {
					t.Errorf("Last().Err = %v, want %q", last.Err, tc.text)
				}
				if _, sent := f.next(t); sent != 3*period+tc.took {
					t.Errorf("next listing came at %v, want %v", sent, 3*period+tc.took)
				}
				if err := f.lister.Last().Err; err != nil {
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
				f := newFixture(t, tc.rt, instrument.Registry{})
				for range tc.take {
					f.next(t)
				}
				synctest.Wait()
				f.stop()
				f.requireEnded(t)
				if tc.take == 0 && name != "while it sends" && !f.lister.Last().Success.IsZero() {
					t.Error("a list that was cut off counts as a success")
				}
				if err := f.lister.Last().Err; err != nil {
					t.Errorf("Last().Err after the end = %v, want nil: the runtime did nothing wrong", err)
				}
			})
		})
	}
}
