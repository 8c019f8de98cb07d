package otlp_test

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	nodes "github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// script is a source that sends the events of the next part with each call, and then waits.
type script struct {
	nodes.Pipeline

	mu    sync.Mutex
	parts [][]pleg.Event
	// after are the positions that were asked for.
	after []pleg.Position
	// err ends the source after the last part.
	err error
}

// Watch implements [nodes.Pipeline].
func (s *script) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		s.mu.Lock()
		s.after = append(s.after, o.After)
		var part []pleg.Event
		if len(s.parts) > 0 {
			part, s.parts = s.parts[0], s.parts[1:]
		}
		last := len(s.parts) == 0
		s.mu.Unlock()
		for _, ev := range part {
			if !yield(ev, nil) {
				return
			}
		}
		if last && s.err != nil {
			yield(pleg.Event{}, s.err)
			return
		}
		<-ctx.Done()
	}
}

func (s *script) asked() []pleg.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.after)
}

func event(kind pleg.EventType, seq uint64) pleg.Event {
	ev := pleg.Event{Type: kind, Epoch: "e", Seq: seq, ObservedAt: time.Now()}
	if kind != pleg.Gap && kind != pleg.Synced && kind != pleg.Bookmark {
		ev.PodUID = "p"
	}
	return ev
}

// What a source sends, what is exported of it, and where the exporter resumes.
func TestExporterFollowsItsSource(t *testing.T) {
	start := []pleg.Event{event(pleg.Gap, 5), event(pleg.ContainerStarted, 3), event(pleg.ContainerStarted, 5), event(pleg.Synced, 5)}
	none := pleg.Position{Epoch: "none"}
	started := []string{"pleg.gap 5", "pleg.container.started 3", "pleg.container.started 5", "pleg.synced 5"}
	for name, tc := range map[string]struct {
		parts [][]pleg.Event
		after []pleg.Position
		want  []string
	}{
		"events, a bookmark and one that it has": {
			parts: [][]pleg.Event{append(slices.Clone(start), event(pleg.PodSync, 6), event(pleg.Bookmark, 6), event(pleg.PodSync, 6), event(pleg.PodSync, 7))},
			after: []pleg.Position{none},
			want:  append(slices.Clone(started), "pleg.pod.sync 6", "pleg.pod.sync 7"),
		},
		"a hole": {
			parts: [][]pleg.Event{append(slices.Clone(start), event(pleg.PodSync, 6), event(pleg.PodSync, 8)), start},
			after: []pleg.Position{none, none},
			want:  started,
		},
		"another epoch": {
			parts: [][]pleg.Event{append(slices.Clone(start), pleg.Event{Type: pleg.PodSync, Epoch: "f", Seq: 6}), start},
			after: []pleg.Position{none, none},
			want:  started,
		},
		"the pipeline stops": {
			parts: [][]pleg.Event{append(slices.Clone(start), pleg.Event{Type: pleg.Gap, Reason: pleg.Stopped, Epoch: "e", Seq: 9, Missed: 4})},
			after: []pleg.Position{none},
			want:  append(slices.Clone(started), "pleg.gap 9"),
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			s, r := &script{parts: tc.parts}, new(receiver)
			stop := r.export(t, nil, s)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := r.names(); !slices.Equal(got, tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
			if got := s.asked(); !slices.Equal(got, tc.after) {
				t.Errorf("it resumed after %v, want %v", got, tc.after)
			}
			stop()
		})
	}
}

// Run ends when its source ends, but not at an error of the source. It runs once.
func TestEndOfTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(receiver)
		start := []pleg.Event{event(pleg.Gap, 0), event(pleg.Synced, 0), event(pleg.PodSync, 1)}
		e, err := otlp.NewExporter(otlp.ExporterOptions{Client: r, Source: &script{parts: [][]pleg.Event{start}, err: pleg.ErrStopped}})
		kit.Must(t, err)
		if err := e.Run(t.Context()); err != nil || len(r.names()) != 3 {
			t.Errorf("first Run: %v with %v, want all three events", err, r.names())
		}
		if err := e.Run(t.Context()); err == nil {
			t.Error("no error of a second Run")
		}
		fails := &script{err: errTestEnds}
		stop := r.export(t, nil, fails)
		time.Sleep(time.Minute)
		if got := len(fails.asked()); got < 4 {
			t.Errorf("a source that fails was asked %d times in a minute, want it again and again", got)
		}
		stop()
	})
}
