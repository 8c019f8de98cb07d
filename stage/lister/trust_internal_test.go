package lister

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// newTrust returns the trust in a stream that has just come up.
func newTrust() *trust {
	t := &trust{}
	t.init(time.Second, 5*time.Minute)
	t.opened()
	time.Sleep(provenAfter)
	return t
}

func (t *trust) confirm(times int, announced bool) (clean int) {
	for range times {
		clean = t.confirmed(time.Second, announced)
	}
	return clean
}

func TestUnannouncedChangeEndsTrustUntilEnoughRelists(t *testing.T) {
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
		if need := trust.missed(); need != cleanRelists {
			t.Errorf("the first unannounced change requires %d clean relists, want %d", need, cleanRelists)
		}
		require("unannounced change", false)
		if need := trust.missed(); need != 0 {
			t.Errorf("an unannounced change during a doubt requires %d more relists, want 0", need)
		}
		trust.confirm(10*cleanRelists, false)
		require("clean relists without a CRI event", false)
		if clean := trust.confirmed(time.Second, true); clean != 10*cleanRelists+1 {
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
		trust.confirm(cleanRelists-1, true)
		if !trust.now().isDoubted() {
			t.Error("a reopened stream is trusted, want it doubted")
		}
	})
}

func TestRelistPeriodIsEarned(t *testing.T) {
	const longest = 5 * time.Minute
	clean := func(covers time.Duration, event bool) func(*trust) {
		return func(t *trust) { t.confirmed(covers, event) }
	}
	reopen := func(t *trust) {
		t.ended()
		t.opened()
		time.Sleep(provenAfter)
	}
	for name, tc := range map[string]struct {
		steps []func(*trust)
		want  time.Duration
	}{
		"a new stream":                   {nil, 0},
		"one clean relist":               {[]func(*trust){clean(time.Second, false)}, 2 * time.Second},
		"the second covers the period":   {[]func(*trust){clean(time.Second, false), clean(2*time.Second, false)}, 4 * time.Second},
		"the second came earlier":        {[]func(*trust){clean(time.Second, false), clean(time.Second, false)}, 2 * time.Second},
		"silence":                        {slices.Repeat([]func(*trust){clean(time.Hour, false)}, 20), unprovenPeriod},
		"silence after a confirmation":   {append([]func(*trust){clean(time.Hour, true)}, slices.Repeat([]func(*trust){clean(time.Hour, false)}, 20)...), longest},
		"an unannounced change":          {[]func(*trust){clean(time.Hour, true), func(t *trust) { t.missed() }}, 0},
		"a relist during the doubt":      {[]func(*trust){func(t *trust) { t.missed() }, clean(time.Hour, true)}, 0},
		"another stream":                 {[]func(*trust){clean(time.Hour, true), reopen}, 0},
		"silence of the other stream":    {append([]func(*trust){clean(time.Hour, true), reopen}, slices.Repeat([]func(*trust){clean(time.Hour, false)}, 20)...), unprovenPeriod},
		"a relist as the stream is down": {[]func(*trust){func(t *trust) { t.ended() }, clean(time.Hour, true)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trust := newTrust()
				for _, do := range tc.steps {
					do(trust)
				}
				if got := trust.now().earned; got != tc.want {
					t.Errorf("the period is %v, want %v", got, tc.want)
				}
			})
		})
	}
}
