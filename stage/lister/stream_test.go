package lister_test

import (
	"testing"
	"time"
)

func TestListsWithAStream(t *testing.T) {
	const (
		ms     = time.Millisecond
		minute = periodWithEvents
	)
	for name, steps := range map[string][]step{
		"it lengthens the relist period": {
			next(0, false), until(400 * ms), up, next(400*ms, false), next(400*ms+minute, true), next(400*ms+2*minute, true),
			until(3 * minute), down, next(3*minute, false), next(3*minute+period, false), up, next(3*minute+period, false),
		},
		"a failed list is retried soon": {
			next(0, false), up, next(0, false), failAfter(0), next(minute+period, true), next(2*minute+period, true),
		},
		"a request shortens the period once": {
			next(0, false), until(400 * ms), soon, next(period, false), // without a stream the request changes nothing
			up, next(period, false), until(10 * time.Second), soon, next(11*time.Second, true), next(11*time.Second+minute, true),
		},
		"requests in a row do not delay the list": {
			next(0, false), up, next(0, false), until(10 * time.Second), soon, until(10500 * ms), soon, next(11*time.Second, true),
			until(70500 * ms), soon, next(71*time.Second, true),
		},
		// That list shows what the stream may have lost, and so does not wait for the pause
		// between requested lists.
		"its end is listed at once": {
			next(0, false), up, next(0, false), until(10 * time.Second), now, next(10*time.Second, true), until(10300 * ms), down, next(10300*ms, false),
		},
		"it comes up during a list": {
			next(0, false), slow(3 * period), until(2 * period), up, next(4*period, false), next(4*period, false), next(4*period+minute, true),
		},
		"it ends during a list": {
			next(0, false), up, next(0, false), slow(3 * period), until(minute + period), down, next(minute+3*period, false), next(minute+3*period, false),
		},
		"another one comes up during a failed list": {
			next(0, false), up, next(0, false), failAfter(3 * period), until(minute + period), down, up,
			next(minute+3*period, false), next(2*minute+3*period, true),
		},
	} {
		t.Run(name, func(t *testing.T) { testLister(t, steps...) })
	}
}
