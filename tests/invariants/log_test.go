package invariants_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// blockedHandler is a log handler that blocks at every record until it is released.
type blockedHandler struct {
	slog.Handler
	release <-chan struct{}
}

func (h blockedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h blockedHandler) Handle(context.Context, slog.Record) error {
	<-h.release
	return nil
}

func (h blockedHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h blockedHandler) WithGroup(string) slog.Handler { return h }

// A log handler that blocks stops no stage, and does not keep Run from returning.
func TestInvariantBlockedLogStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := kit.New(t, pipeline.Options{Logger: slog.New(blockedHandler{slog.DiscardHandler, release})})
		events, full := p.Events(t, 0), p.Events(t, 1)
		p.Runtime.Set("sick", "c=running")
		p.Runtime.SetPodFault("sick", plegtest.Fail(errInspect))
		p.Runtime.Set("well", "c=running")
		p.StartBetweenLists(t)
		kit.RequireEvents(t, events, "well", "Started(c)")
		p.Runtime.SetListFault(plegtest.Fail(errInspect))
		kit.Relist(2)
		p.Runtime.SetListFault(nil)
		p.Runtime.Set("well", "c=exited d=running")
		kit.Relist(2)
		kit.RequireEvents(t, events, "well", "Died(c) Started(d)")
		if len(full) == 0 {
			t.Error("the subscriber with the full buffer got nothing")
		}
		began := time.Now()
		_ = p.Stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Run returned %v after its end, want it within 2 s", took)
		}
	})
}
