package lister_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestHealthyWithEvents(t *testing.T) {
	testLister(t, plegtest.New(), openStream, healthy(""), fail,
		until(threshold+time.Minute), healthy(""), // the next list is not due yet
		until(proof+thresholdWithEvents), healthy(""),
		until(proof+thresholdWithEvents+time.Second),
		healthy("last seen active 10m1s ago; threshold is 10m0s: list pods: "+errList.Error()))
}

// After a stream ends, the threshold without a stream applies from then on, however
// many streams follow.
func TestHealthyAfterTheStreamEnds(t *testing.T) {
	const end = 4 * time.Minute
	steps := []step{
		openStream, fail, until(end), ended, until(end + threshold), healthy(""),
		until(end + threshold + time.Second), healthy(errList.Error()),
	}
	for n := range time.Duration(5) {
		steps = append(steps, opened, until(end+threshold+time.Second+(n+1)*time.Minute), ended)
	}
	testLister(t, plegtest.New(), append(steps, healthy(errList.Error()))...)
}

// The end of a stream does not prolong the threshold with events.
func TestEndOfTheStreamMakesNothingHealthy(t *testing.T) {
	testLister(t, plegtest.New(), openStream, fail, until(proof+thresholdWithEvents+time.Second), ended, healthy(errList.Error()))
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	testLister(t, faultyRuntime(plegtest.Fail(errList)), healthy("yet to be successful: list pods: "+errList.Error()))
}
