package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

func clientOf(t *testing.T, d *hostile.Daemon) *client.Client {
	t.Helper()
	c, err := client.New("", client.Options{Dial: hostile.Serve(t, d)})
	kit.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func podOf(bytes int) *plegv1.ListPodsResponse {
	return &plegv1.ListPodsResponse{Pod: &plegv1.Pod{Uid: strings.Repeat("x", bytes)}}
}

func TestListsOfHostileServersAreBounded(t *testing.T) {
	type stream = hostile.ListStream
	all := func(n int, answer *plegv1.ListPodsResponse) func(stream) error {
		return func(s stream) error {
			for range n {
				if err := s.Send(answer); err != nil {
					return err
				}
			}
			return nil
		}
	}
	many := func(n int, answer *plegv1.ListPodsResponse) func(stream) error {
		return func(s stream) error {
			err := all(n, answer)(s)
			<-s.Context().Done() // the client has given up
			return err
		}
	}
	if pods, _, err := clientOf(t, &hostile.Daemon{OnList: all(1, podOf(16<<20-100))}).Pods(t.Context()); err != nil || len(pods) != 1 {
		t.Errorf("a pod of nearly 16 MiB: %d pods, %v", len(pods), err)
	}
	client.DivideLimits(t, 32)
	const most = "list pods: the server sent more than 3125 pods or 8388608 bytes"
	for name, tt := range map[string]struct {
		list func(stream) error
		says string
	}{
		"as many pods as allowed":     {all(3125, podOf(0)), ""},
		"too many pods":               {many(3126, podOf(0)), most},
		"as many bytes as allowed":    {all(1024, podOf(8<<10-6)), ""}, // a message has 8 KiB
		"too many bytes":              {many(1025, podOf(8<<10-6)), most},
		"a pod of a great length":     {func(s stream) error { return s.Send(podOf(16 << 20)) }, "larger than max"},
		"an error of a great length":  {func(stream) error { return status.Error(codes.Internal, strings.Repeat("x", 1<<20)) }, "list pods: "},
		"a trailer of a great length": {func(s stream) error { s.SetTrailer(metadata.Pairs("x", strings.Repeat("x", 1<<20))); return nil }, "list pods: "},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			list := func(s stream) error { defer close(ended); return tt.list(s) }
			pods, _, err := clientOf(t, &hostile.Daemon{OnList: list}).Pods(t.Context())
			if (err == nil) != (tt.says == "") || err != nil && (!strings.Contains(err.Error(), tt.says) || tt.says == most && err.Error() != most || len(err.Error()) > 1000) {
				t.Errorf("%d pods, %v, want an error with %q", len(pods), err, tt.says)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the call goes on after its error")
			}
		})
	}
}

// A message without an event, or with an impossible time, still counts as an event.
func TestEventsOfHostileServer(t *testing.T) {
	c := clientOf(t, &hostile.Daemon{OnWatch: hostile.Events(
		nil, &plegv1.Event{Type: 4711, ObservedAt: &timestamppb.Timestamp{Seconds: 1 << 60}}, &plegv1.Event{Type: plegv1.EventType_EVENT_TYPE_GAP},
	)})
	n := 0
	for ev, err := range c.Watch(t.Context(), pleg.SubscribeOptions{Replay: true}) {
		if err != nil || !ev.ObservedAt.IsZero() {
			t.Errorf("got %+v, %v", ev, err)
		}
		if n++; ev.Type == pleg.Gap {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}

// The client does not send a request that it can refuse itself.
func TestBadOptions(t *testing.T) {
	c := clientOf(t, &hostile.Daemon{OnWatch: func(r *plegv1.WatchRequest, _ hostile.WatchStream) error {
		t.Errorf("%v was sent", r)
		return status.Error(codes.InvalidArgument, "no")
	}})
	for says, o := range map[string]pleg.SubscribeOptions{
		`Filter.Types has the unknown event type "Nothing"`:                {Filter: pleg.Filter{Types: []pleg.EventType{"Nothing"}}},
		"After and Since exclude each other":                               {After: pleg.Position{Epoch: "e"}, Since: time.Now()},
		"After has no epoch, so its number 475 may be of another pipeline": {After: pleg.Position{Seq: 475}},
	} {
		_, ofSubscription := c.Subscribe(o)
		var ofWatch error
		for _, err := range c.Watch(t.Context(), o) {
			ofWatch = errors.Join(ofWatch, err)
		}
		for of, err := range map[string]error{"subscribe: ": ofSubscription, "watch: ": ofWatch} {
			if !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != of+"SubscribeOptions."+says {
				t.Errorf("%+v: %v, want %sSubscribeOptions.%s", o, err, of, says)
			}
		}
	}
	if _, err := client.New("", client.Options{}); !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != "new client: the path of the socket is empty" {
		t.Errorf("no socket: %v", err)
	}
}

// A watch ends after an error that no later attempt can remove. After any other error it tries
// again.
func TestFinalErrors(t *testing.T) {
	final := []codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			watches := 0
			c := clientOf(t, &hostile.Daemon{OnWatch: func(*plegv1.WatchRequest, hostile.WatchStream) error {
				if watches++; watches == 2 {
					cancel()
				}
				return status.Error(code, "no")
			}})
			var got error
			for _, err := range c.Watch(ctx, pleg.SubscribeOptions{}) {
				got = err
			}
			is := slices.Contains(final, code)
			if is != (watches == 1 && status.Code(got) == code) {
				t.Errorf("%v: %d watches, then %v; want an end: %v", code, watches, got, is)
			}
			if !is || t.Failed() { // a subscription would wait forever
				return
			}
			sub, err := c.Subscribe(pleg.SubscribeOptions{})
			kit.Must(t, err)
			for range 2 { // the reason stays
				n := 0
				for _, err := range sub.All(t.Context()) {
					if n++; n > 1 || status.Code(err) != code || errors.Is(err, pleg.ErrInvalidOption) != (code == codes.InvalidArgument) {
						t.Fatalf("%v: a subscription ended with %v, the error number %d", code, err, n)
					}
				}
				if n != 1 {
					t.Errorf("%v: a subscription ended with %d errors", code, n)
				}
			}
		})
	}
}

// After a Gap the replay comes, even if the watch wants none, and also within the replay that it does not
// want. With bookmarks it knows a position before its first event.
func TestGapHasItsReplay(t *testing.T) {
	started, replayed := pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "c"}, pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "r", Replayed: true}
	gap, synced := pleg.Event{Type: pleg.Gap}, pleg.Event{Type: pleg.Synced}
	for _, tc := range []struct {
		sent            []pleg.Event
		plain, bookmark string // what a watch gets, and one with bookmarks
	}{
		{
			[]pleg.Event{replayed, synced, started, gap, replayed, synced, {Type: pleg.Bookmark}, started},
			"Started(c) Gap() Started(r) Synced() Started(c)", "Synced() Started(c) Gap() Started(r) Synced() Bookmark() Started(c)",
		},
		{[]pleg.Event{replayed, gap, replayed, synced, started}, "Gap() Started(r) Synced() Started(c)", "Gap() Started(r) Synced() Started(c)"},
	} {
		var events []*plegv1.Event
		for seq, ev := range tc.sent {
			ev.Epoch, ev.Seq = "e", uint64(seq+1)
			events = append(events, wire.FromEvent(ev))
		}
		c := clientOf(t, &hostile.Daemon{OnWatch: hostile.Events(events...)})
		for bookmarks, want := range map[bool]string{false: tc.plain, true: tc.bookmark} {
			var got []pleg.Event
			for ev, err := range c.Watch(t.Context(), pleg.SubscribeOptions{Bookmarks: bookmarks}) {
				kit.Must(t, err)
				if got = append(got, ev); ev.Seq == uint64(len(events)) {
					break
				}
			}
			if is := plegtest.Words(got...); is != want {
				t.Errorf("bookmarks %v: got %s, want %s", bookmarks, is, want)
			}
		}
	}
}

// A server that ends each connection at once, or after an event, is asked less and less often. A server whose
// connections then last longer than the waits is asked again at once.
func TestShortConnectionsBackOff(t *testing.T) {
	for _, test := range []struct {
		short, lasts time.Duration // connections end at once for a time, and then last
		least, most  int64
	}{
		{5 * time.Minute, -1, 30, 80}, // at once
		{5 * time.Minute, 0, 30, 80},
		{0, 20 * time.Second, 15, 15},
		{time.Minute, 4 * time.Second, 25, 45},
		{time.Minute, 20 * time.Second, 20, 32},
	} {
		synctest.Test(t, func(t *testing.T) {
			var watches atomic.Int64
			began := time.Now()
			d := &hostile.Daemon{OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
				watches.Add(1)
				if test.lasts < 0 {
					return nil
				}
				for connected := time.Now(); ; time.Sleep(time.Second) { // an event in each second
					if err := stream.Send(&plegv1.WatchResponse{Event: &plegv1.Event{Epoch: "e", Seq: 1}}); err != nil || connected.Sub(began) < test.short || time.Since(connected) >= test.lasts {
						return err
					}
				}
			}}
			var waits []time.Duration
			c, err := client.New("", client.Options{Dial: hostile.Serve(t, d), Disconnected: func(err error, in time.Duration) {
				if waits = append(waits, in); err.Error() != "receive: the server ended the stream" {
					t.Errorf("disconnected: %v", err)
				}
			}})
			kit.Must(t, err)
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for _, err := range c.Watch(ctx, pleg.SubscribeOptions{}) {
				if err != nil {
					t.Error(err)
				}
			}
			if n := watches.Load(); n < test.least || n > test.most {
				t.Errorf("%d connections in five minutes, want %+v", n, test)
			}
			for n, wait := range waits[:min(9, len(waits))] { // of connections that end at once
				if longest := min(100*time.Millisecond<<n, 10*time.Second); test.short > 0 && (wait > longest || wait < longest/2) {
					t.Errorf("wait %d is %v, want half of %v to all of it", n, wait, longest)
				}
			}
		})
	}
}

// requestsOf returns the first two requests of a watch whose first connection breaks after
// some events.
func requestsOf(t *testing.T, o pleg.SubscribeOptions, events []pleg.Event) (requests [2]*plegv1.WatchRequest) {
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
	stateBefore := pleg.SubscribeOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}, Replay: true}
	tests := []struct {
		name    string
		options pleg.SubscribeOptions
		events  []pleg.Event
		after   uint64 // 0: it asks for a replay
		state   bool   // the watch asks for a replay too
	}{
		{"an event", pleg.SubscribeOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4)}, 4, false},
		{"a bookmark", pleg.SubscribeOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), mark(pleg.Bookmark, 7)}, 7, false},
		{"a gap in the middle", pleg.SubscribeOptions{Replay: true}, []pleg.Event{mark(pleg.Synced, 3), started(4), mark(pleg.Gap, 12)}, 4, false},
		{"what follows a gap", pleg.SubscribeOptions{Replay: true}, []pleg.Event{started(4), mark(pleg.Gap, 12), mark(pleg.Synced, 12), started(13)}, 13, false},
		{"a reinspected pod", pleg.SubscribeOptions{Replay: true}, []pleg.Event{{Seq: 5, Type: pleg.PodSync, PodUID: "a"}}, 5, false},
		{"a gap", pleg.SubscribeOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20)}, 2, false},
		{"a part of a replay", pleg.SubscribeOptions{Replay: true}, []pleg.Event{replayed(6)}, 6, false},
		{"a gap and a part of its replay", pleg.SubscribeOptions{After: pleg.Position{Epoch: "epoch", Seq: 2}}, []pleg.Event{mark(pleg.Gap, 20), replayed(6)}, 6, false},
		{"nothing", pleg.SubscribeOptions{Replay: true}, nil, 0, false},
		{"nothing of the state and the events since a time", pleg.SubscribeOptions{Replay: true, Since: time.Unix(1, 0)}, nil, 0, false},
		{"a part of a replay not asked for", pleg.SubscribeOptions{}, []pleg.Event{replayed(6)}, 0, false},
		{"a part of the state before a position", stateBefore, []pleg.Event{replayed(1)}, 2, true},
		{"the state before a position", stateBefore, []pleg.Event{replayed(1), started(3)}, 3, false},
		{"a gap instead of the state", stateBefore, []pleg.Event{mark(pleg.Gap, 20), replayed(6)}, 6, false},
		{"a replay not asked for", pleg.SubscribeOptions{}, []pleg.Event{replayed(6), mark(pleg.Synced, 8)}, 8, false},
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

// Each request carries every option, also a request after a broken connection.
func TestEveryOptionGoesWithEachRequest(t *testing.T) {
	o := pleg.SubscribeOptions{Name: "agent", Since: time.Unix(1, 0), Statuses: true, Filter: pleg.Filter{Selector: "app=web", OmitSandboxes: true}}
	want, err := wire.FromOptions(o)
	kit.Must(t, err)
	want.Bookmarks = true // always: they keep the position
	for n, got := range requestsOf(t, o, []pleg.Event{{Seq: 4, Type: pleg.ContainerDied, PodUID: "a"}}) {
		if n == 1 { // the watch resumes after the event
			want.Since, want.ResumeAfter = nil, &plegv1.Position{Epoch: "epoch", Seq: 4}
		}
		if !proto.Equal(got, want) {
			t.Errorf("request %d: %v, want %v", n, got, want)
		}
	}
}
