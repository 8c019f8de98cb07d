package lister

import (
	"testing"
	"testing/synctest"
	"time"
)

// up returns the trust of a stream that has just come up.
func up() *trust {
	t := &trust{}
	t.init()
	t.opened()
	time.Sleep(provenAfter)
	return t
}

func (t *trust) confirm(times int, heard bool) (clean int) {
	for range times {
		clean = t.confirmed(heard)
	}
	return clean
}

func TestTrustIsLostByAMissAndRegainedByCleanRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust := up()
		require := func(when string, want bool) {
			t.Helper()
			if got, _ := trust.now().standsIn(); got != want {
				t.Errorf("%s: events stand in for lists: %v, want %v", when, got, want)
			}
		}
		require("up", true)
		time.Sleep(time.Second)
		if need := trust.missed(); need != cleanRelists {
			t.Errorf("the first miss takes %d clean relists, want %d", need, cleanRelists)
		}
		require("missed", false)
		if need := trust.missed(); need != 0 {
			t.Errorf("a miss while doubted begins a doubt of %d", need)
		}
		trust.confirm(10*cleanRelists, false)
		require("clean, but no event came", false)
		if clean := trust.confirmed(true); clean != 10*cleanRelists+1 {
			t.Errorf("trusted again after %d clean relists, want %d", clean, 10*cleanRelists+1)
		}
		require("clean, and an event came", true)

		if need := trust.missed(); need != 2*cleanRelists {
			t.Errorf("the second doubt takes %d clean relists, want twice as many as the first", need)
		}
		trust.confirm(2*cleanRelists-1, true)
		require("one clean relist short", false)
		trust.missed()
		trust.confirm(2*cleanRelists-1, true)
		require("a miss starts the count again", false)
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
		trust := up()
		trust.missed()
		trust.ended()
		time.Sleep(time.Second)
		trust.opened()
		time.Sleep(provenAfter)
		if ok, _ := trust.now().standsIn(); ok {
			t.Error("a stream that was opened again is trusted, want it doubted as before")
		}
	})
}
