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

func podOf(containers int) *plegv1.ListPodsResponse {
	st := &plegv1.PodStatus{}
	for range containers {
		st.Containers = append(st.Containers, &plegv1.ContainerStatus{})
	}
	return &plegv1.ListPodsResponse{Pod: &plegv1.Pod{Uid: "a", Status: st}}
}

func TestListsOfHostileServersAreBounded(t *testing.T) {
	client.DivideLimits(t, 32)
	type stream = hostile.ListStream
	endless := func(answer *plegv1.ListPodsResponse) func(stream) error {
		return func(s stream) error {
			for {
				if err := s.Send(answer); err != nil {
					return err
				}
			}
		}
	}
	for name, tt := range map[string]struct {
		list func(stream) error
		says string
	}{
		"pods without end":            {endless(podOf(0)), "more than 3125 pods"},
		"pods of many containers":     {endless(podOf(3_000)), "8388608 bytes"},
		"a pod of a great many":       {func(s stream) error { return s.Send(podOf(100_000)) }, "more than 100000 elements"},
		"an error of a great length":  {func(stream) error { return status.Error(codes.Internal, strings.Repeat("x", 1<<20)) }, "list pods: "},
		"a trailer of a great length": {func(s stream) error { s.SetTrailer(metadata.Pairs("x", strings.Repeat("x", 1<<20))); return nil }, "list pods: "},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := clientOf(t, &hostile.Daemon{OnList: tt.list}).Pods(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 1000 {
				t.Errorf("%d pods, %v, want an error with %q", len(pods), err, tt.says)
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
	for ev, err := range c.Watch(t.Context(), client.WatchOptions{Replay: true}) {
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

// What the client can check itself is not sent.
func TestBadOptions(t *testing.T) {
	c := clientOf(t, &hostile.Daemon{OnWatch: func(r *plegv1.WatchRequest, _ hostile.WatchStream) error {
		t.Errorf("%v was sent", r)
		return status.Error(codes.InvalidArgument, "no")
	}})
	for says, o := range map[string]client.WatchOptions{
		`Types has the unknown event type "Nothing"`:                       {Filter: pleg.Filter{Types: []pleg.EventType{"Nothing"}}},
		"After and Since exclude each other":                               {After: pleg.Position{Epoch: "e"}, Since: time.Now()},
		"After has no epoch, so its number 475 may be of another pipeline": {After: pleg.Position{Seq: 475}},
	} {
		_, ofSubscription := c.Subscribe(o)
		var ofWatch error
		for _, err := range c.Watch(t.Context(), o) {
			ofWatch = errors.Join(ofWatch, err)
		}
		for _, err := range []error{ofSubscription, ofWatch} {
			if !errors.Is(err, pleg.ErrInvalidOption) || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v, want %q", o, err, says)
			}
		}
	}
	if _, err := client.New("", client.Options{}); !errors.Is(err, pleg.ErrInvalidOption) {
		t.Errorf("no socket: %v, want %v", err, pleg.ErrInvalidOption)
	}
}

// A watch ends with the errors that no later attempt can mend, and asks again after all others.
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
			for _, err := range c.Watch(ctx, client.WatchOptions{}) {
				got = err
			}
			is := slices.Contains(final, code)
			if is != (watches == 1 && status.Code(got) == code) {
				t.Errorf("%v: %d watches, then %v; want an end: %v", code, watches, got, is)
			}
			if !is {
				return
			}
			sub, err := c.Subscribe(pleg.SubscribeOptions{})
			kit.Must(t, err)
			if _, err := sub.Next(t.Context()); status.Code(err) != code || errors.Is(err, pleg.ErrInvalidOption) != (code == codes.InvalidArgument) {
				t.Errorf("%v: a subscription ended with %v", code, err)
			}
		})
	}
}

// After a Gap the replay comes, even if the watch wants none. With bookmarks it has a position
// before its first event.
func TestGapHasItsReplay(t *testing.T) {
	started, replayed := pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "c"}, pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "r", Replayed: true}
	var events []*plegv1.Event
	for seq, ev := range []pleg.Event{replayed, {Type: pleg.Synced}, started, {Type: pleg.Gap}, replayed, {Type: pleg.Synced}, {Type: pleg.Bookmark}, started} {
		ev.Epoch, ev.Seq = "e", uint64(seq+1)
		events = append(events, wire.FromEvent(ev))
	}
	c := clientOf(t, &hostile.Daemon{OnWatch: hostile.Events(events...)})
	for bookmarks, want := range map[bool]string{
		false: "Started(c) Gap() Started(r) Synced() Started(c)",
		true:  "Synced() Started(c) Gap() Started(r) Synced() Bookmark() Started(c)",
	} {
		var got []pleg.Event
		for ev, err := range c.Watch(t.Context(), client.WatchOptions{Bookmarks: bookmarks}) {
			kit.Must(t, err)
			if got = append(got, ev); ev.Seq == 8 {
				break
			}
		}
		if is := plegtest.Words(got...); is != want {
			t.Errorf("bookmarks %v: got %s, want %s", bookmarks, is, want)
		}
	}
}

// A server that ends each connection after an event is asked less and less often. A server whose
// connections last longer than the waits is asked again at once.
func TestShortConnectionsBackOff(t *testing.T) {
	for lasts, want := range map[time.Duration][2]int64{0: {30, 80}, 20 * time.Second: {15, 15}} {
		synctest.Test(t, func(t *testing.T) {
			var watches atomic.Int64
			c := clientOf(t, &hostile.Daemon{OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
				watches.Add(1)
				defer time.Sleep(lasts)
				return stream.Send(&plegv1.WatchResponse{Event: &plegv1.Event{Epoch: "e", Seq: 1}})
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for _, err := range c.Watch(ctx, client.WatchOptions{}) {
				if err != nil {
					t.Error(err)
				}
			}
			if n := watches.Load(); n < want[0] || n > want[1] {
				t.Errorf("%d connections of %v in five minutes, want %v", n, lasts, want)
			}
		})
	}
}
