package lister_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// The threshold is the same with a stream and without.
func TestHealthyWithEvents(t *testing.T) {
	testLister(t, plegtest.New(), openStream, fail, until(proof+threshold), healthy(""),
		until(proof+threshold+time.Second), healthy("last seen active 3m1s ago; threshold is 3m0s: list pods: "+errList.Error()))
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	testLister(t, faultyRuntime(plegtest.Fail(errList)), healthy("yet to be successful: list pods: "+errList.Error()))
}
