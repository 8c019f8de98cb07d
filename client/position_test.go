package client_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// requestsOf returns the first two requests of a watch whose first connection breaks after
// some events.
func requestsOf(t *testing.T, o client.WatchOptions, events []pleg.Event) (requests [2]*plegv1.WatchRequest) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	c := clientOf(t, &hostile.Daemon{OnWatch: func(r *plegv1.WatchRequest, stream hostile.WatchStream) error {
		requests[n] = r
		if n++; n == 2 {
			cancel()
			return nil
		}
		for _, ev := range events {
			ev.Epoch = "epoch"
			if err := stream.Send(&plegv1.WatchResponse{Event: wire.FromEvent(ev)}); err != nil {
				return err
			}
		}
		return nil
	}})
	for _, err := range c.Watch(ctx, o) {
		if err != nil {
			t.Error(err)
		}
	}
	return requests
}

// Wherever a watch is interrupted, the position from which it resumes skips no event.
func TestWatchResumesFromLastEvent(t *testing.T) {
	started := func(seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: pleg.ContainerStarted, PodUID: "a"} }
	replayed := func(seq uint64) pleg.Event {
		ev := started(seq)
		ev.Replayed = true
		return ev
	}
	mark := func(t pleg.EventType, seq uint64) pleg.Event { return pleg.Event{Seq: seq, Type: t} }
	stateBefore := client.WatchOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}, Replay: true}
	tests := []struct {
		name    string
		options client.WatchOptions
		events  []pleg.Event
		after   uint64 // 0: it asks for a replay
		state   bool   // it asks for a replay too
	}{
		{"an event", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4)}, 4, false},
		{"a bookmark", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), mark(pleg.Bookmark, 7)}, 7, false},
		{"a gap in the middle", client.WatchOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4), mark(pleg.Gap, 12)}, 4, false},
		{"what follows a gap", client.WatchOptions{Replay: true}, []pleg.Event{started(4), mark(pleg.Gap, 12), mark(pleg.Synced, 12), started(13)}, 13, false},
		{"a reinspected pod", client.WatchOptions{Replay: true}, []pleg.Event{{Seq: 5, Type: pleg.PodSync, PodUID: "a"}}, 5, false},
		{"a gap", client.WatchOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20)}, 2, false},
		{"a part of a replay", client.WatchOptions{Replay: true}, []pleg.Event{replayed(6)}, 6, false},
		{"a gap and a part of its replay", client.WatchOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20), replayed(6)}, 6, false},
		{"nothing", client.WatchOptions{Replay: true}, nil, 0, false},
		{"nothing of the state and the events since a time", client.WatchOptions{Replay: true, Since: time.Unix(1, 0)}, nil, 0, false},
		{"a part of a replay not asked for", client.WatchOptions{}, []pleg.Event{replayed(6)}, 0, false},
		{"a part of the state before a position", stateBefore, []pleg.Event{replayed(1)}, 2, true},
		{"the state before a position", stateBefore, []pleg.Event{replayed(1), started(3)}, 3, false},
		{"a gap instead of the state", stateBefore, []pleg.Event{mark(pleg.Gap, 20), replayed(6)}, 6, false},
		{"a replay not asked for", client.WatchOptions{}, []pleg.Event{replayed(6), mark(pleg.Synced, 8)}, 8, false},
	}
	for _, tt := range tests {
		kit.Bubble(t, tt.name, func(t *testing.T) {
			r := requestsOf(t, tt.options, tt.events)[1]
			if replay := tt.after == 0; r.GetReplay() != (replay || tt.state) || (r.GetResumeAfter() == nil) != replay || r.GetResumeAfter().GetSeq() != tt.after {
				t.Errorf("then asked for %v, want the events after %d, or a replay if that is 0; with the state: %v", r, tt.after, tt.state)
			}
		})
	}
}

// Each request has every option, also a request after a broken connection.
func TestEveryOptionGoesWithEachRequest(t *testing.T) {
	o := client.WatchOptions{Name: "agent", Since: time.Unix(1, 0), Statuses: true, Filter: pleg.Filter{Selector: "app=web", OmitSandboxes: true}}
	want, err := wire.FromOptions(o)
	kit.Must(t, err)
	want.Bookmarks = true // always: they keep the position
	for n, got := range requestsOf(t, o, []pleg.Event{{Seq: 4, Type: pleg.ContainerDied, PodUID: "a"}}) {
		if n == 1 { // it resumes after the event
			want.Since, want.ResumeAfter = nil, &plegv1.Position{Epoch: "epoch", Seq: 4}
		}
		if !proto.Equal(got, want) {
			t.Errorf("request %d: %v, want %v", n, got, want)
		}
	}
}
