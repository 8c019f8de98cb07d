package server

import (
	"context"
	"errors"
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

// lasting is the context of a server that counts the functions that wait for its end.
type lasting struct {
	context.Context //nolint:containedctx // it is a context

	waiting *int
	done    chan struct{}
}

func (l lasting) Done() <-chan struct{} { return l.done }

func (l lasting) AfterFunc(func()) (stop func() bool) {
	*l.waiting++
	return func() bool { *l.waiting--; return true }
}

// A call that has ended leaves nothing in the context of its server, which may run for years.
func TestEndedCallLeavesNothing(t *testing.T) {
	waiting := 0
	_, end := untilClosing(t.Context(), lasting{t.Context(), &waiting, make(chan struct{})})
	if waiting != 1 {
		t.Errorf("%d functions wait during the call, want 1", waiting)
	}
	if end(); waiting != 0 {
		t.Errorf("%d functions wait after the call", waiting)
	}
}

// A call that succeeds while the server ends has no error.
func TestSuccessDuringShutdown(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	end(errShuttingDown)
	if err := unavailable(ctx, nil); err != nil {
		t.Errorf("a call without an error ended with %v", err)
	}
	if err := unavailable(ctx, errors.New("broken")); err == nil || err.Error() != "rpc error: code = Unavailable desc = the server is shutting down" {
		t.Errorf("a call with an error ended with %v", err)
	}
}
