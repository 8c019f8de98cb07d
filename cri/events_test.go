package cri_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// watch follows the events of a client until the test ends.
type watch struct {
	hints  chan pleg.Hint
	opened chan struct{}
	ended  chan error
}

func watchEvents(t *testing.T, client *cri.Client) *watch {
	t.Helper()
	w := &watch{hints: make(chan pleg.Hint, 1000), opened: make(chan struct{}), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- client.WatchEvents(ctx, func() { close(w.opened) }, func(h pleg.Hint) { w.hints <- h })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// TestEventsEqualLists makes every change of a simulated runtime, one at a time, and
// requires that the last event of a pod shows the same as a list.
func TestEventsEqualLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		w := watchEvents(t, client)
		synctest.Wait()
		rng := rand.New(rand.NewPCG(1, 2))
		_, err := rt.Populate(simruntime.Population{Pods: 4, Containers: 2, Dead: 1})
		must(t, err)
		for step := range 200 {
			rt.Burst(1+step%2, []simruntime.Change{simruntime.Restart, simruntime.Exit, simruntime.Replace, simruntime.Remove}[rng.IntN(4)])
			if step%5 == 0 {
				populate(t, rt, 2, 2)
			}
			synctest.Wait()
			last := make(map[pleg.PodUID]pleg.Hint)
			for len(w.hints) > 0 {
				h := <-w.hints
				if h.Pod == nil || h.Status == nil || h.At.IsZero() {
					t.Fatalf("step %d: incomplete hint %+v of a complete event", step, h)
				}
				last[h.UID] = h
			}
			for uid, h := range last {
				checkHint(t, rt, client, uid, h)
			}
			time.Sleep(time.Second)
		}
	})
}

func checkHint(t *testing.T, rt *simruntime.Runtime, client *cri.Client, uid pleg.PodUID, h pleg.Hint) {
	t.Helper()
	now, ok := rt.Pod(string(uid))
	if !ok {
		if !h.Removed || h.Container != h.Sandbox || len(h.Pod.Sandboxes)+len(h.Pod.Containers) != 0 {
			t.Errorf("the pod %s is gone; the last hint of it is %+v with %s", uid, h, show([]*pleg.Pod{h.Pod}))
		}
		return
	}
	wantTruth(t, "the hint", []*pleg.Pod{h.Pod}, []simruntime.Pod{now})
	if h.Pod.Labels["io.kubernetes.pod.uid"] != now.UID {
		t.Errorf("the hint has the labels %v", h.Pod.Labels)
	}
	want, err := client.PodStatus(t.Context(), h.Pod, nil)
	must(t, err)
	if !reflect.DeepEqual(h.Status, want) {
		t.Fatalf("the hint has the status %+v, want %+v", h.Status, want)
	}
}

// A runtime that ends the stream at once has its events switched off. One that ends it
// later, or after an event, has events: also if it restarts twice within a second and ends
// new streams at once.
func TestEventsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		lives  []time.Duration // of one stream after another
		events int
		err    error // of the runtime
		none   bool
		code   codes.Code
		words  string
	}{
		"not implemented":   {[]time.Duration{0}, 0, status.Error(codes.Unimplemented, "unknown"), true, codes.Unimplemented, ""},
		"broken":            {[]time.Duration{0}, 3, status.Error(codes.Unavailable, "broken"), false, codes.Unavailable, "broken"},
		"at once":           {[]time.Duration{0}, 0, nil, true, codes.Unknown, "ended the stream"},
		"after an event":    {[]time.Duration{0}, 1, nil, false, codes.Unknown, "ended the stream"},
		"after two seconds": {[]time.Duration{2 * time.Second, 0, 0}, 0, nil, false, codes.Unknown, "ended the stream"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lives time.Duration
				client := connect(t, &fakeRuntime{events: func(stream eventStream) error {
					for range tt.events {
						if err := stream.Send(&runtimeapi.ContainerEventResponse{}); err != nil {
							return err
						}
					}
					time.Sleep(lives)
					return tt.err
				}}, cri.Options{})
				for _, lives = range tt.lives {
					err := <-watchEvents(t, client).ended
					if err == nil || errors.Is(err, pleg.ErrNoEvents) != tt.none || errors.Is(err, io.EOF) ||
						status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.words) {
						t.Errorf("a stream that lived for %v ended with %v, want the code %v, no events: %t", lives, err, tt.code, tt.none)
					}
				}
			})
		})
	}
}

// TestSlowReaderDoesNotBlockRuntime sends far more than grpc's default window holds to
// a client that does not return from its first hint.
func TestSlowReaderDoesNotBlockRuntime(t *testing.T) {
	const events = 3000
	big := &runtimeapi.ContainerEventResponse{ContainerId: strings.Repeat("x", 2<<10)}
	sent := make(chan error, 1)
	fake := &fakeRuntime{events: func(stream eventStream) error {
		for range events {
			if err := stream.Send(big); err != nil {
				sent <- err
				return err
			}
		}
		sent <- nil
		<-stream.Context().Done()
		return nil
	}}
	client := connect(t, fake, cri.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	release, done, got := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		_ = client.WatchEvents(ctx, func() {}, func(pleg.Hint) { // its end is the test's
			<-release
			if got++; got == events {
				cancel()
			}
		})
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the runtime waits for the reader: 6 MB do not fit into the window")
	}
	close(release)
	<-done
	cancel()
	if got != events {
		t.Errorf("%d events arrived, want %d", got, events)
	}
}
