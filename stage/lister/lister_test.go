package lister_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

func TestRelistPeriodBeginsWhenTheListEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		rt.Set("1", "c=running")
		rt.SetListFault(func(context.Context) error {
			calls := rt.Counts().Lists
			time.Sleep(time.Duration(calls) * 100 * time.Millisecond)
			rt.SetList([]*pleg.Pod{plegtest.Pod(pleg.PodUID(fmt.Sprint(calls+1)), "")}) // for the next list
			return nil
		})
		f := newFixture(t, rt)
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

func TestNextRelistWaitsUntilTheListingIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt)
		time.Sleep(time.Minute)
		synctest.Wait()
		if lists := rt.Counts().Lists; lists != 1 {
			t.Errorf("lists before the first listing was received = %d, want 1", lists)
		}
		f.next(t)
		if _, sent := f.next(t); sent != time.Minute+period {
			t.Errorf("second listing came at %v, want %v", sent, time.Minute+period)
		}
	})
}

// Only the third list has the fault.
func TestFailedListIsRetriedAPeriodLater(t *testing.T) {
	for name, tc := range map[string]struct {
		fault plegtest.Fault
		took  time.Duration
		err   error
		text  string
	}{
		"error": {fault: plegtest.Fail(errList), err: errList, text: "list pods: " + errList.Error()},
		"panic": {fault: plegtest.Panic("nil map"), text: "list pods: panic: nil map"},
		"no answer": {
			fault: plegtest.Hang, took: timeout, err: context.DeadlineExceeded,
			text: "list pods: no answer within the list timeout of 10s: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := plegtest.New()
				f := newFixture(t, rt)
				f.next(t)
				f.next(t)
				rt.SetListFault(tc.fault)
				time.Sleep(period + tc.took)
				synctest.Wait()
				last := f.lister.Last()
				if got := last.Success.Sub(f.start); got != period {
					t.Errorf("last success at %v, want that of the second list at %v", got, period)
				}
				if last.Err == nil || last.Err.Error() != tc.text || tc.err != nil && !errors.Is(last.Err, tc.err) {
					t.Errorf("Last().Err = %v, want %q", last.Err, tc.text)
				}
				rt.SetListFault(nil)
				if _, sent := f.next(t); sent != 3*period+tc.took {
					t.Errorf("next listing came at %v, want %v", sent, 3*period+tc.took)
				}
				if err := f.lister.Last().Err; err != nil {
					t.Errorf("Last().Err after a successful list = %v, want nil", err)
				}
			})
		})
	}
}

// With a very short period a list is due all the time.
func TestRunEndsAlthoughAListIsDue(t *testing.T) {
	l, err := lister.New(lister.Options{
		Runtime: faultyRuntime(plegtest.Hang), RelistPeriod: 1, RelistThreshold: threshold, RelistPeriodWithEvents: 1,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, make(chan stage.Listing)) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want the cause of its context", err)
	}
}
