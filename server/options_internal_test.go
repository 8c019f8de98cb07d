package server

import (
	"math"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each option has its own default. A negative Keepalive is never.
func TestDefaults(t *testing.T) {
	for keepalive, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -1: math.MaxInt64, 7: 7} {
		o := Options{Keepalive: keepalive}
		kit.Must(t, o.complete())
		if o.Logger == nil {
			t.Error("no logger")
		}
		o.Logger = nil
		if want := (Options{MaxConnections: 1024, MaxStreams: 64, MaxWatchers: 1024, MaxCalls: 512, Keepalive: want}); o != want {
			t.Errorf("the options are %+v, want %+v", o, want)
		}
	}
}
