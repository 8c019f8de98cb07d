package exporter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Nothing is missing for an exporter, whatever happens to pods.
func TestFollowLeavesNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		events := make(chan pleg.Event, 100)
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan error, 1)
		go func() { followed <- exporter.Source{Pipeline: p.Pipeline, Name: "test"}.Follow(ctx, nil, events) }()
		synctest.Wait()
		p.StartBetweenLists(t)
		for _, words := range []string{"c=created /s=running", "c=running /s=running", "c=exited /s=running", "c=exited d=unknown /s=exited"} {
			p.Runtime.Set("shop/web", words)
			p.RequestReinspect("shop/web")
			kit.Relist(1)
		}
		cancel()
		if err := <-followed; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow returned %v, want the cause of its end", err)
		}
		close(events)
		last, seen := pleg.Position{Epoch: p.Epoch()}, 0
		for ev := range events {
			if ev.PodUID == "" {
				continue
			}
			if isNew, err := exporter.IsNew(&ev, last); err != nil || !isNew {
				t.Errorf("%v after %v: %v", ev, last, err)
			}
			last.Seq = ev.Seq
			seen++
		}
		if seen < 6 {
			t.Errorf("%d events, want the events of each step", seen)
		}
	})
}
