// Package fanout_test compares the dispatcher with the broadcaster of Kubernetes. It is
// in this module to keep apimachinery out of the module that programs import.
package fanout_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every subscriber gets a batch before the next one is sent. The buffer is larger
// than a batch, so that no event for a subscriber that reads is discarded.
const (
	fanOutBatch  = 100
	fanOutBuffer = 1000
)

// BenchmarkFanOut sends events to subscribers, some of which never read. The
// broadcaster of Kubernetes either waits for all watchers, so that one that never
// reads blocks it, or discards the events of full watchers without a trace.
func BenchmarkFanOut(b *testing.B) {
	for _, subscribers := range []int{1, 10, 100, 1000} {
		for _, stalled := range []int{0, 10} {
			if stalled >= subscribers {
				continue
			}
			name := fmt.Sprintf("subscribers=%d/stalled=%d", subscribers, stalled)
			b.Run("impl=dispatcher/"+name, func(b *testing.B) { dispatcherFanOut(b, subscribers, stalled) })
			b.Run("impl=broadcaster-drop/"+name, func(b *testing.B) {
				broadcasterFanOut(b, watch.DropIfChannelFull, subscribers, stalled)
			})
			if stalled == 0 {
				b.Run("impl=broadcaster-wait/"+name, func(b *testing.B) {
					broadcasterFanOut(b, watch.WaitIfChannelFull, subscribers, stalled)
				})
			}
		}
	}
}

// readers count down the batch after reading all its events.
type readers struct {
	batch sync.WaitGroup
	all   errgroup.Group
}

func read[E any](r *readers, events <-chan E) {
	r.all.Go(func() error {
		n := 0
		for range events {
			if n++; n%fanOutBatch == 0 {
				r.batch.Done()
			}
		}
		return nil
	})
}

// measure sends a batch to the subscribers in each iteration.
func (r *readers) measure(b *testing.B, subscribers, stalled int, send, stop func()) {
	b.ReportAllocs()
	for b.Loop() {
		r.batch.Add(subscribers - stalled)
		send()
		r.batch.Wait()
	}
	n := float64(b.N) * fanOutBatch * float64(subscribers)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/event-subscriber")
	stop()
	if err := r.all.Wait(); err != nil {
		b.Error(err)
	}
}

func dispatcherFanOut(b *testing.B, subscribers, stalled int) {
	d, err := dispatcher.New(dispatcher.Options{
		History: pipeline.DefaultHistory, SlowAfter: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	var r readers
	for i := range subscribers {
		s, err := d.Subscribe(pleg.SubscribeOptions{Buffer: fanOutBuffer})
		if err != nil {
			b.Fatal(err)
		}
		if i >= stalled {
			read(&r, s.Events())
		}
	}
	outcomes := make(chan stage.Outcome, stage.OutcomeBuffer)
	r.all.Go(func() error { return d.Run(outcomes, nil) })
	batch := make([]pleg.Event, fanOutBatch)
	for i := range batch {
		batch[i] = pleg.Event{Type: pleg.ContainerDied, PodUID: pleg.PodUID(fmt.Sprintf("uid-%d", i)), ContainerID: "c"}
	}
	r.measure(b, subscribers, stalled, func() {
		for i := range batch {
			outcomes <- stage.Outcome{Events: batch[i : i+1]}
		}
	}, func() { close(outcomes) })
}

func broadcasterFanOut(b *testing.B, full watch.FullChannelBehavior, subscribers, stalled int) {
	broadcaster := watch.NewBroadcaster(fanOutBuffer, full)
	var r readers
	for i := range subscribers {
		w, err := broadcaster.Watch()
		if err != nil {
			b.Fatal(err)
		}
		if i >= stalled {
			read(&r, w.ResultChan())
		}
	}
	object := &metav1.Status{}
	r.measure(b, subscribers, stalled, func() {
		for range fanOutBatch {
			if err := broadcaster.Action(watch.Modified, object); err != nil {
				b.Fatal(err)
			}
		}
	}, broadcaster.Shutdown)
}
