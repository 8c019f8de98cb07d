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
	t.init(time.Second, time.Minute)
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
		trust.confirmed(time.Second, true)
		require("too early after the last unannounced change", false)
		time.Sleep(time.Nanosecond)
		if !trust.confirmed(time.Second, false) {
			t.Error("the end of the doubt is not reported")
		}
		require("quiet, and an event was confirmed", true)
		trust.missed()
		time.Sleep(2 * quietTime)
		trust.confirmed(time.Second, false)
		require("quiet, but no event was confirmed", false)
		trust.confirmed(time.Second, true)
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
		trust.confirmed(time.Second, true)
		if !trust.now().isDoubted() {
			t.Error("a reopened stream is trusted, want it doubted")
		}
	})
}

func TestRelistPeriodIsEarned(t *testing.T) {
	const longest = time.Minute
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
