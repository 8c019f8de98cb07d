package lister_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// requestEach requests a list at once every 100 ms.
func requestEach(from, until time.Duration) step {
	return func(_ *testing.T, f *fixture) {
		for at := from; at < until; at += 100 * time.Millisecond {
			f.sleepUntil(at)
			f.lister.RelistNow()
			synctest.Wait()
		}
	}
}

// A request waits for nothing but another requested list. Hints that never end cause lists
// with a pause between them, not lists back to back.
func TestWhenRequestedListsBegin(t *testing.T) {
	const ms = time.Millisecond
	hints := requestEach(400*ms, 4500*ms)
	var relist step = func(_ *testing.T, f *fixture) { f.lister.Relist() }
	for name, tc := range map[string]struct {
		period time.Duration
		took   time.Duration // by each list
		err    error
		steps  []step
		want   []time.Duration // in milliseconds, of the lists that begin within 5 s
	}{
		"hints, fast lists":   {period, 0, nil, []step{hints}, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
		"hints, slow lists":   {period, 250 * ms, nil, []step{hints}, []time.Duration{0, 400, 1650, 2900, 4150}},
		"hints, failed lists": {period, 0, errList, []step{hints}, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
		"hints, short period": {800 * ms, 0, nil, []step{hints}, []time.Duration{0, 400, 1200, 2000, 2800, 3600, 4400}},
		"hints, long period":  {time.Hour, 0, nil, []step{hints}, []time.Duration{0, 400, 1400, 2400, 3400, 4400}},
		"few requests": {time.Hour, 0, nil, []step{
			requestEach(100*ms, 200*ms),
			until(1050 * ms), relist, // a caller waits for a period after the last such request, too
			until(1090 * ms), now, until(1200 * ms), soon, now,
		}, []time.Duration{0, 100, 1100, 2100}},
		// A request that is made while a list begins is served by that list.
		"requests during lists": {time.Hour, 250 * ms, nil, []step{now, until(300 * ms), now, relist}, []time.Duration{0, 250, 1500}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var began []time.Duration
			start := time.Now()
			f := newFixture(t, faultyRuntime(func(context.Context) error {
				began = append(began, time.Since(start)/ms)
				time.Sleep(tc.took)
				return tc.err
			}), tc.period)
			go func() {
				for range f.listings {
				}
			}()
			synctest.Wait()
			for _, step := range append(tc.steps, until(5*time.Second)) {
				step(t, f)
			}
			if !slices.Equal(began, tc.want) {
				t.Errorf("lists at %d ms, want %d", began, tc.want)
			}
		})
	}
}
