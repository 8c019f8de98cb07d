package lister

import (
	"testing"
	"testing/synctest"
	"time"
)

// newTrust returns the trust in a stream that has just come up.
func newTrust() *trust {
	t := &trust{}
	t.evidence.Store(&evidence{})
	t.opened()
	time.Sleep(provenAfter)
	return t
}

func TestUnannouncedChangeEndsTrustUntilQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust := newTrust()
		require := func(when string, want bool) {
			t.Helper()
			if got := !trust.now().isDoubted(); got != want {
				t.Errorf("%s: trusted: %v, want %v", when, got, want)
			}
		}
		require("up", true)
		time.Sleep(time.Second)
		if !trust.missed() {
			t.Error("the first unannounced change does not end the trust")
		}
		require("unannounced change", false)
		time.Sleep(quietTime - 1)
		if trust.missed() {
			t.Error("an unannounced change during a doubt ends the trust again")
		}
		time.Sleep(quietTime - 1)
		trust.confirmed(true)
		require("too early after the last unannounced change", false)
		time.Sleep(time.Nanosecond)
		if !trust.confirmed(false) {
			t.Error("the end of the doubt is not reported")
		}
		require("quiet, and an event was confirmed", true)
		trust.missed()
		time.Sleep(2 * quietTime)
		trust.confirmed(false)
		require("quiet, but no event was confirmed", false)
		trust.confirmed(true)
		require("an event was confirmed", true)
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
		trust.confirmed(true)
		if !trust.now().isDoubted() {
			t.Error("a reopened stream is trusted, want it doubted")
		}
	})
}
