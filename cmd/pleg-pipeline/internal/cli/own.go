package cli

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// settleTimeout is how long a pipeline in this process may take to inspect all pods.
// The commands do not wait longer for pods whose inspection hangs.
const settleTimeout = 5 * time.Second

// useOwn calls with for a pipeline in this process.
func useOwn(ctx context.Context, out console, from endpoint.Endpoint, with func(context.Context, source) error) error {
	runtime, err := connect(ctx, out, from, cri.Options{Logger: out.log}, false)
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer func() { _ = runtime.Close() }()
	pipe, err := pipeline.New(pipeline.Options{
		Runtime: runtime, DeliverAfterFailures: defaultDeliverAfter, Logger: out.log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = pipe.Run(running) // only the end of running ends it
	}()
	defer func() { stop(); <-ended }()
	if err := settle(ctx, pipe); err != nil {
		return err
	}
	return with(ctx, ownSource{pipe})
}

// settle waits until all pods of the first list have been inspected.
func settle(ctx context.Context, pipe *pipeline.Pipeline) error {
	sub, err := pipe.Subscribe(pipeline.SubscribeOptions{Name: "settle", Bookmarks: true, Filter: pleg.Filter{Types: []pleg.EventType{pleg.PodSync}}})
	if err != nil {
		return err
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	ctx, stop := untilOnlyHung(ctx, ownSource{pipe})
	defer stop()
	for ev := range sub.All(ctx) {
		if ev.Type == pleg.Bookmark {
			return nil
		}
	}
	if healthy, err := pipe.Healthy(); !healthy && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return nil
}

// errOnlyHung ends the wait for the state of pods that hang.
var errOnlyHung = errors.New("the inspections of the other pods hang")

// hungPeriod is the time between two looks for such pods. In the first one, the events of
// the others arrive.
const hungPeriod = 500 * time.Millisecond

// untilOnlyHung returns a context that ends with [errOnlyHung] once each pod that is not
// known yet hangs: who asks for the pods wants to see that, not to wait for it too. stop
// releases the context.
func untilOnlyHung(ctx context.Context, from top.Source) (until context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(hungPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if now, err := from.Status(ctx); err == nil && onlyHung(now) {
				cancel(errOnlyHung)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// onlyHung reports whether pods wait for their inspection and all of them hang.
func onlyHung(s pleg.Status) bool {
	hung := make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		if i.Hung {
			hung[i.UID] = true
		}
	}
	for _, q := range s.Quarantined {
		hung[q.UID] = true
	}
	return s.Waiting > 0 && s.Waiting <= len(hung)
}

// ownSource is a pipeline in this process.
type ownSource struct{ pipe *pipeline.Pipeline }

// Events implements [top.Source].
func (s ownSource) Events(ctx context.Context, o client.WatchOptions) iter.Seq2[fleet.Event, error] {
	return eventsOf(ctx, s.pipe, o, func(err error) error { return err })
}

// Pods implements [top.Source].
func (s ownSource) Pods(context.Context) ([]view.Pod, error) {
	return view.Pods(s.pipe.Cache().List(), s.pipe.Status()), nil
}

// Pod implements [source].
func (s ownSource) Pod(_ context.Context, ev fleet.Event) (view.Pod, bool, error) {
	e, ok := s.pipe.Cache().Entry(ev.PodUID)
	return view.OnePod(e, s.pipe.Status()), ok, nil
}

// Status implements [top.Source].
func (s ownSource) Status(context.Context) (pleg.Status, error) { return s.pipe.Status(), nil }

// Nodes implements [top.Source].
func (ownSource) Nodes(context.Context) ([][2]string, string, error) { return nil, "", nil }
