package pipeline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// sick lists one pod whose inspection fails until it is well.
type sick struct {
	pod  *pleg.Pod
	well atomic.Bool
}

func (s *sick) ListPods(context.Context) ([]*pleg.Pod, error) { return []*pleg.Pod{s.pod}, nil }

func (s *sick) PodStatus(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
	if !s.well.Load() {
		return nil, errors.New("sick")
	}
	return &pleg.PodStatus{UID: s.pod.UID}, nil
}

func TestDeliverAfterFailures(t *testing.T) {
	for _, after := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			rt := &sick{pod: &pleg.Pod{UID: "p", Containers: []*pleg.Container{{ID: "c", State: pleg.StateRunning}}}}
			p, err := pipeline.New(pipeline.Options{Runtime: rt, DeliverAfterFailures: after})
			if err != nil {
				t.Fatal(err)
			}
			sub, err := p.Subscribe(pipeline.SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.Run(ctx) }()

			time.Sleep(1500 * time.Millisecond) // two failures
			synctest.Wait()
			if n := len(sub.Events()); n != 0 {
				t.Errorf("after=%d: %d events after two failures, want none", after, n)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if got, want := len(sub.Events()), min(after, 1); got != want {
				t.Fatalf("after=%d: %d events after many failures, want %d", after, got, want)
			}
			if after > 0 {
				if ev := <-sub.Events(); ev.Type != pleg.ContainerStarted || !ev.Uninspected {
					t.Errorf("got %+v, want an uninspected ContainerStarted", ev)
				}
				if _, err := p.Cache().Get("p"); err == nil {
					t.Error("the cache forgot the error")
				}
			}
			rt.well.Store(true)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			want := pleg.ContainerStarted
			if after > 0 {
				want = pleg.PodSync
			}
			if ev := <-sub.Events(); ev.Type != want || ev.Uninspected {
				t.Errorf("after=%d: got %+v once well, want an inspected %s", after, ev, want)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v, want context.Canceled", err)
			}
		})
	}
}
