package lister

import (
	"testing"
	"testing/synctest"
	"time"
)

// newTrust returns the trust in a stream that has just come up.
func newTrust() *trust {
	t := &trust{}
	t.init()
	t.opened()
	time.Sleep(provenAfter)
	return t
}

func (t *trust) confirm(times int, announced bool) (clean int) {
	for range times {
		clean = t.confirmed(announced)
	}
	return clean
}

func TestUnannouncedChangeEndsTrustUntilEnoughRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust := newTrust()
		require := func(when string, want bool) {
			t.Helper()
			if got, _ := trust.now().standsIn(); got != want {
				t.Errorf("%s: events stand in for lists: %v, want %v", when, got, want)
			}
		}
		require("up", true)
		time.Sleep(time.Second)
		if need := trust.missed(); need != cleanRelists {
			t.Errorf("the first unannounced change requires %d clean relists, want %d", need, cleanRelists)
		}
		require("unannounced change", false)
		if need := trust.missed(); need != 0 {
			t.Errorf("an unannounced change during a doubt requires %d more relists, want 0", need)
		}
		trust.confirm(10*cleanRelists, false)
		require("clean relists without a CRI event", false)
		if clean := trust.confirmed(true); clean != 10*cleanRelists+1 {
			t.Errorf("trusted again after %d clean relists, want %d", clean, 10*cleanRelists+1)
		}
		require("clean relists and a CRI event", true)

		if need := trust.missed(); need != 2*cleanRelists {
			t.Errorf("the second doubt requires %d clean relists, want twice as many as the first", need)
		}
		trust.confirm(2*cleanRelists-1, true)
		require("one clean relist short", false)
		trust.missed()
		trust.confirm(2*cleanRelists-1, true)
		require("an unannounced change restarts the count", false)
		trust.confirm(1, true)
		require("enough clean relists", true)
		for range 20 {
			trust.missed()
			trust.confirm(maxCleanRelists, true)
		}
		require("after many doubts", true)
	})
}

func TestDoubtOutlivesTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust := newTrust()
		trust.missed()
		trust.ended()
		time.Sleep(time.Second)
		trust.opened()
		time.Sleep(provenAfter)
		if ok, _ := trust.now().standsIn(); ok {
			t.Error("a reopened stream is trusted, want it doubted")
		}
	})
}
