package lister_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// timedRuntime records when each list begins; each takes some time and may fail.
type timedRuntime struct {
	took  time.Duration
	err   error
	began []time.Duration
}

func (r *timedRuntime) fixture(t *testing.T, period time.Duration) *fixture {
	t.Helper()
	start := time.Now()
	f := newFixture(t, faultyRuntime(func(context.Context) error {
		r.began = append(r.began, time.Since(start))
		time.Sleep(r.took)
		return r.err
	}), period)
	go func() {
		for range f.listings {
		}
	}()
	synctest.Wait()
	return f
}

// requestEach requests a list at once every 100 ms.
func (f *fixture) requestEach(from, until time.Duration) {
	for at := from; at < until; at += 100 * time.Millisecond {
		f.sleepUntil(at)
		f.lister.RelistNow()
		synctest.Wait()
	}
}

// Hints that never end cause lists with a pause between them, not lists back to back.
func TestRequestsInARowCauseAListPerPeriod(t *testing.T) {
	for name, tc := range map[string]struct {
		runtime timedRuntime
		period  time.Duration
		want    []time.Duration // in milliseconds, of the lists that begin within 5 s
	}{
		"fast lists":   {timedRuntime{}, period, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
		"slow lists":   {timedRuntime{took: 250 * time.Millisecond}, period, []time.Duration{0, 400, 1650, 2900, 4150}},
		"failed lists": {timedRuntime{err: errList}, period, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
		"short period": {timedRuntime{}, 800 * time.Millisecond, []time.Duration{0, 400, 1200, 2000, 2800, 3600, 4400}},
		"long period":  {timedRuntime{}, time.Hour, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := tc.runtime
			f := rt.fixture(t, tc.period)
			f.requestEach(400*time.Millisecond, 4500*time.Millisecond)
			f.sleepUntil(5 * time.Second)
			requireBegan(t, rt.began, tc.want...)
		})
	}
}

func requireBegan(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(got, want) {
		t.Errorf("lists at %v, want %v", got, want)
	}
}

// A request waits for nothing but another requested list.
func TestRequestIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := timedRuntime{}
		f := rt.fixture(t, time.Hour)
		f.requestEach(100*time.Millisecond, 200*time.Millisecond)
		f.sleepUntil(1050 * time.Millisecond)
		f.lister.Relist() // a caller waits for a period after the last such request, too
		f.sleepUntil(1090 * time.Millisecond)
		f.lister.RelistNow()
		f.sleepUntil(1200 * time.Millisecond)
		f.lister.RelistSoon()
		f.lister.RelistNow()
		f.sleepUntil(5 * time.Second)
		requireBegan(t, rt.began, 0, 100, 1100, 2100)
	})
}

// A request that is made while a list begins is served by that list.
func TestListServesTheRequestThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := timedRuntime{took: 250 * time.Millisecond}
		f := rt.fixture(t, time.Hour)
		f.lister.RelistNow() // during the first list
		f.sleepUntil(300 * time.Millisecond)
		f.lister.RelistNow() // during the second
		f.lister.Relist()
		f.sleepUntil(5 * time.Second)
		requireBegan(t, rt.began, 0, 250, 1500)
	})
}
