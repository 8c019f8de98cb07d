package client_test

import (
	"context"
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
	c := clientOf(t, &hostile.Daemon{OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
		for _, event := range []*plegv1.Event{nil, {Type: 4711, ObservedAt: &timestamppb.Timestamp{Seconds: 1 << 60}}, {Type: plegv1.EventType_EVENT_TYPE_GAP}} {
			if err := stream.Send(&plegv1.WatchResponse{Event: event}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}})
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
			if is := slices.Contains(final, code); is != (watches == 1 && status.Code(got) == code) {
				t.Errorf("%v: %d watches, then %v; want an end: %v", code, watches, got, is)
			}
		})
	}
}

// After a Gap the replay comes, even if the watch wants none.
func TestGapHasItsReplay(t *testing.T) {
	started, replayed := pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "c"}, pleg.Event{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "r", Replayed: true}
	c := clientOf(t, &hostile.Daemon{OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
		for seq, ev := range []pleg.Event{replayed, {Type: pleg.Synced}, started, {Type: pleg.Gap}, replayed, {Type: pleg.Synced}, started} {
			ev.Epoch, ev.Seq = "e", uint64(seq+1)
			if err := stream.Send(&plegv1.WatchResponse{Event: wire.FromEvent(ev)}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}})
	var got []pleg.Event
	for ev, err := range c.Watch(t.Context(), client.WatchOptions{}) {
		kit.Must(t, err)
		if got = append(got, ev); ev.Seq == 7 {
			break
		}
	}
	if is := words(got); is != "Started(c) Gap() reStarted(r) Synced Started(c)" {
		t.Errorf("got %s, want the Gap and its replay", is)
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
