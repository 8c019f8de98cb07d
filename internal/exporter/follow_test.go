package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// ended is a source that has ended, as it says in words of its own.
type ended struct{ node.Pipeline }

// Watch implements [node.Pipeline].
func (ended) Watch(context.Context, pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		yield(pleg.Event{}, fmt.Errorf("watch: %w", pleg.ErrStopped))
	}
}

// The end of the source is no failure: nothing would ever be better at the next attempt.
func TestSessionEndsWithItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Start(t)
		kit.Relist(1)
		time.AfterFunc(time.Second, func() { _ = p.Stop() })
		for _, source := range []node.Pipeline{p.Pipeline, ended{}} {
			err := exporter.Session(t.Context(), source, pleg.SubscribeOptions{}, func(ctx context.Context, from <-chan pleg.Event) error {
				for {
					select {
					case _, open := <-from:
						if !open {
							return exporter.ErrSourceEnded
						}
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			})
			if !errors.Is(err, exporter.ErrSourceEnded) {
				t.Errorf("Session returned %v, want the end of the source", err)
			}
		}
	})
}

// An exporter misses no event, however pods change.
func TestSessionLeavesNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		var events []pleg.Event
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan error, 1)
		go func() {
			followed <- exporter.Session(ctx, p.Pipeline, pleg.SubscribeOptions{Name: "test", Replay: true}, func(ctx context.Context, from <-chan pleg.Event) error {
				for {
					select {
					case ev := <-from:
						events = append(events, ev)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			})
		}()
		synctest.Wait()
		p.StartBetweenLists(t)
		for _, words := range []string{"c=created /s=running", "c=running /s=running", "c=exited /s=running", "c=exited d=unknown /s=exited"} {
			p.Runtime.Set("shop/web", words)
			p.RequestReinspect("shop/web")
			kit.Relist(1)
		}
		cancel()
		if err := <-followed; !errors.Is(err, context.Canceled) {
			t.Errorf("Session returned %v, want the cause of its end", err)
		}
		last, seen := pleg.Position{Epoch: p.Epoch()}, 0
		for _, ev := range events {
			if ev.PodUID == "" {
				continue
			}
			if isNew, err := exporter.IsNew(&ev, last); err != nil || !isNew {
				t.Errorf("%v after %v: %v", ev, last, err)
			}
			last.Seq = ev.Seq
			seen++
		}
		if !slices.ContainsFunc(events, func(ev pleg.Event) bool { return ev.Type == pleg.Bookmark }) {
			t.Error("no bookmark, by which an exporter knows that nothing has changed")
		}
		if seen < 6 {
			t.Errorf("%d events, want the events of each step", seen)
		}
	})
}

// An error of the source ends the session, and does not look like its end.
func TestSessionNamesTheErrorOfItsSource(t *testing.T) {
	p := kit.New(t, pipeline.Options{})
	err := exporter.Session(t.Context(), p.Pipeline, pleg.SubscribeOptions{After: pleg.Position{Seq: 3}}, func(ctx context.Context, from <-chan pleg.Event) error {
		select {
		case _, open := <-from:
			t.Errorf("the channel is open: %v, want nothing", open)
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	if !errors.Is(err, pleg.ErrInvalidOption) || !strings.HasPrefix(err.Error(), "follow events: subscribe: After has no epoch") {
		t.Errorf("Session returned %v", err)
	}
}

// An event is the next one, or it came before, or others are missing.
func TestIsNew(t *testing.T) {
	last := pleg.Position{Epoch: "e", Seq: 7}
	for _, tc := range []struct {
		epoch string
		seq   uint64
		isNew bool
		err   string
	}{
		{"e", 8, true, ""},
		{"e", 7, false, ""},
		{"e", 1, false, ""},
		{"e", 9, false, "the source left out events: e/9 follows e/7"},
		{"f", 8, false, "the source left out events: f/8 follows e/7"},
		{"f", 1, false, "the source left out events: f/1 follows e/7"},
	} {
		isNew, err := exporter.IsNew(&pleg.Event{Epoch: tc.epoch, Seq: tc.seq}, last)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if isNew != tc.isNew || text != tc.err {
			t.Errorf("%s/%d: %v, %q, want %v, %q", tc.epoch, tc.seq, isNew, text, tc.isNew, tc.err)
		}
	}
}
