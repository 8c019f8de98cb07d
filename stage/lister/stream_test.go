package lister_test

import (
	"testing"
	"time"
)

func TestListsWithAStream(t *testing.T) {
	const (
		half    = 500 * time.Millisecond
		trusted = 10*time.Minute + 12*time.Second
		end     = 80 * time.Second
		early   = 10*time.Second + 300*time.Millisecond
	)
	broke := func(t *testing.T, f *fixture) {
		if l, sent := f.next(t); sent != end || !l.StreamUp || !l.StreamBroke { // for unannounced changes
			t.Errorf("listing at %v, stream up %v, broke %v, want one as the stream breaks", sent, l.StreamUp, l.StreamBroke)
		}
	}
	for name, steps := range map[string][]step{
		"it lengthens the relist period": {
			openStream, next(proof+periodWithEvents, true), until(end), ended, broke,
			ended, next(end+period, false), opened, next(end+period+proof, false),
		},
		"a failed list is retried soon": {
			openStream, failAfter(0), next(proof+periodWithEvents+period, true), next(proof+2*periodWithEvents+period, true),
		},
		"a request shortens the period once": {
			next(0, false), until(400 * time.Millisecond), soon, next(period, false), // without a stream the request changes nothing
			opened, next(period+proof, false),
			until(10 * time.Second), soon, next(11*time.Second, true), next(11*time.Second+periodWithEvents, true),
		},
		"requests in a row do not delay the list": {
			openStream, until(10 * time.Second), soon, until(10*time.Second + half), soon, next(11*time.Second, true),
			until(11*time.Second + periodWithEvents - half), soon, next(11*time.Second+periodWithEvents, true),
		},
		"doubt shortens the relist period": {
			openStream, until(10 * time.Second), unannounced, next(10*time.Second, true), // it was due after a period without events
			unannounced, next(11*time.Second, true), next(12*time.Second, true),
			until(trusted), func(_ *testing.T, f *fixture) { f.lister.ChangesAnnounced(true) }, // ends the doubt
			next(trusted, true), until(trusted + periodWithEvents/2), next(trusted+periodWithEvents, true),
			func(t *testing.T, f *fixture) {
				f.logged.RequireLines(t, 1, "event stream is missing changes")
				f.logged.RequireLines(t, 1, "announces all changes again")
			},
		},
		// That list shows what the stream may have lost, and so does not wait for the pause
		// between requested lists.
		"its end is listed at once": {
			openStream, until(10 * time.Second), now, next(10*time.Second, true), until(early), ended, func(t *testing.T, f *fixture) {
				if _, sent := f.next(t); sent != early {
					t.Errorf("listing at %v, want one as the stream ends", sent)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) { testLister(t, steps...) })
	}
}

func TestStreamThatEndsEarlyIsNeverUp(t *testing.T) {
	testLister(t, next(0, false), opened, until(proof-time.Millisecond), ended, next(period, false), next(2*period, false))
}

func TestStreamThatComesUpDuringAListGetsAnotherList(t *testing.T) {
	testLister(t, next(0, false), slow(3*period), until(2*period), opened,
		next(4*period, false), next(4*period, false), next(4*period+periodWithEvents, true))
}
