package lister_test

import (
	"context"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestStreamLengthensTheRelistPeriod(t *testing.T) {
	const end = 80 * time.Second
	testLister(t, plegtest.New(), openStream, next(proof+periodWithEvents, true), until(end), ended,
		func(t *testing.T, f *fixture) {
			if l, sent := f.next(t); sent != end || !l.StreamUp || !l.StreamBroke { // for unannounced changes
				t.Errorf("listing at %v, stream up %v, broke %v, want one as the stream breaks", sent, l.StreamUp, l.StreamBroke)
			}
		},
		ended, next(end+period, false), opened, next(end+period+proof, false))
}

func TestStreamThatEndsEarlyIsNeverUp(t *testing.T) {
	testLister(t, plegtest.New(), next(0, false), opened, until(proof-time.Millisecond), ended, next(period, false), next(2*period, false))
}

func TestStreamThatComesUpDuringAListGetsAnotherList(t *testing.T) {
	first := true
	rt := faultyRuntime(func(context.Context) error {
		if first {
			first = false
			time.Sleep(3 * period)
		}
		return nil
	})
	testLister(t, rt, opened, next(3*period, false), next(3*period, false), next(3*period+periodWithEvents, true))
}

func TestFailedListIsRetriedSoonWithAStream(t *testing.T) {
	testLister(t, failOn(3), openStream, next(proof+periodWithEvents+period, true), next(proof+2*periodWithEvents+period, true))
}

func TestRequestShortensThePeriodWithEventsOnce(t *testing.T) {
	testLister(t, plegtest.New(), next(0, false),
		until(400*time.Millisecond), soon, next(period, false), // without a stream the request changes nothing
		opened, next(period+proof, false),
		until(10*time.Second), soon, next(11*time.Second, true), next(11*time.Second+periodWithEvents, true))
}

func TestRequestsInARowDoNotDelayTheList(t *testing.T) {
	const half = 500 * time.Millisecond
	testLister(t, plegtest.New(), openStream,
		until(10*time.Second), soon, until(10*time.Second+half), soon, next(11*time.Second, true),
		until(11*time.Second+periodWithEvents-half), soon, next(11*time.Second+periodWithEvents, true))
}

func TestDoubtedStreamShortensTheRelistPeriod(t *testing.T) {
	const trusted = 10*time.Minute + 12*time.Second
	testLister(t, plegtest.New(), openStream, until(10*time.Second),
		unannounced, next(10*time.Second, true), // it was due after a period without events
		unannounced, next(11*time.Second, true), next(12*time.Second, true),
		until(trusted), func(_ *testing.T, f *fixture) { f.lister.ChangesAnnounced(true) }, // ends the doubt
		next(trusted, true), until(trusted+periodWithEvents/2), next(trusted+periodWithEvents, true))
}
