package server

import (
	"log/slog"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each option has its own default. A negative Keepalive is never.
func TestDefaults(t *testing.T) {
	for keepalive, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -1: math.MaxInt64, 7: 7} {
		o := Options{Keepalive: keepalive}
		kit.Must(t, o.complete())
		want := Options{MaxConnections: 1024, MaxStreams: 64, MaxWatchers: 1024, MaxCalls: 512, Keepalive: want, Logger: slog.New(slog.DiscardHandler)}
		if !reflect.DeepEqual(o, want) {
			t.Errorf("the options are %+v, want %+v", o, want)
		}
	}
}
