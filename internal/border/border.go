// Package border stands between the embedder's [pleg.Runtime] and the stages.
//
// Whatever the runtime does, a call across the border returns an error instead
// of doing harm: every call but the event stream has a deadline, a panic and a
// runtime.Goexit cost that call only, and an answer that no stage could work with
// is repaired or refused. So the stages need no such defence.
package border

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Options configure a [Runtime].
type Options struct {
	// ListTimeout ends a list of all pods or of one pod; positive.
	ListTimeout time.Duration
	Logger      *slog.Logger
	Metrics     instrument.Registry
}

// Runtime calls the embedder's runtime. Its methods are safe for concurrent use
// and return when the runtime's method has returned.
type Runtime struct {
	embedded    pleg.Runtime
	listTimeout time.Duration
	log         *slog.Logger
	malformed   prometheus.Counter
	// degraded and reported hold one value while that method is called.
	degraded, reported chan struct{}
}

// New returns the border around a runtime.
func New(embedded pleg.Runtime, o Options) (*Runtime, error) {
	r := &Runtime{
		embedded: embedded, listTimeout: o.ListTimeout, log: o.Logger,
		degraded: make(chan struct{}, 1), reported: make(chan struct{}, 1),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_malformed_pods_total",
			Help: "Pods and containers skipped because the runtime returned them without what identifies them.",
		}),
	}
	return r, o.Metrics.Register(r.malformed)
}

// ListPods lists all pods. Items of the list that no stage could place are left
// out and counted.
func (r *Runtime) ListPods(ctx context.Context) (pods []*pleg.Pod, err error) {
	ctx, cancel := r.withListTimeout(ctx)
	defer cancel()
	err = r.call(ctx, "ListPods", "", func() (err error) {
		pods, err = r.embedded.ListPods(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return r.wellFormed(ctx, pods), nil
}

// PodStatus inspects one pod. An inspection that takes longer than timeout fails.
func (r *Runtime) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus, timeout time.Duration) (status *pleg.PodStatus, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within the inspect timeout of %v", timeout))
	defer cancel()
	err = r.call(ctx, "PodStatus", pod.UID, func() (err error) {
		status, err = r.embedded.PodStatus(ctx, pod, last)
		return err
	})
	if err == nil {
		err = checkStatus(status, pod.UID)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect pod %s/%s (%s): %w", pod.Namespace, pod.Name, pod.UID, err)
	}
	return status, nil
}

// PodLister returns the runtime's [pleg.PodLister], or nil if it has none.
func (r *Runtime) PodLister() pleg.PodLister {
	if pods, ok := r.embedded.(pleg.PodLister); ok {
		return podLister{r, pods}
	}
	return nil
}

// EventWatcher returns the runtime's [pleg.EventWatcher], or nil if it has none.
func (r *Runtime) EventWatcher() pleg.EventWatcher {
	if events, ok := r.embedded.(pleg.EventWatcher); ok {
		return eventWatcher{r, events}
	}
	return nil
}

// Degraded returns what the runtime says of lists that work by a fallback,
// or nil.
func (r *Runtime) Degraded() error {
	d, ok := r.embedded.(pleg.Degraded)
	if !ok {
		return nil
	}
	err, ok := ask(r, r.degraded, "Degraded", d.Degraded)
	if !ok {
		return errors.New("the runtime's Degraded panics or does not return")
	}
	return err
}

// Calls returns the calls in flight, the oldest first; nil if the runtime is no
// [pleg.CallReporter].
func (r *Runtime) Calls() []pleg.Call {
	reporter, ok := r.embedded.(pleg.CallReporter)
	if !ok {
		return nil
	}
	calls, _ := ask(r, r.reported, "Calls", reporter.Calls)
	return calls
}

// CallOf returns the first of the calls that is about the pod, or about all pods if uid is
// empty; nil if there is none.
func CallOf(calls []pleg.Call, uid pleg.PodUID) *pleg.Call {
	if i := slices.IndexFunc(calls, func(c pleg.Call) bool { return c.PodUID == uid }); i >= 0 {
		return &calls[i]
	}
	return nil
}

// patience is how long a method may take that must not block. A process with a limit of CPU may
// not run for some tenths of a second.
const patience = time.Second

// ask returns what a method that must not block returns; false if it panics or has not
// returned within patience. turn has room for one: while a call blocks, no other is made.
func ask[T any](r *Runtime, turn chan struct{}, method string, f func() T) (got T, ok bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case turn <- struct{}{}:
	case <-timer.C:
		return got, false
	}
	answer := make(chan T, 1)
	go func() {
		defer func() { <-turn }()
		defer close(answer)
		_ = Contain(r.log, method, "", func() error { answer <- f(); return nil }) // logged
	}()
	select {
	case got, ok = <-answer:
	case <-timer.C:
	}
	return got, ok
}

type podLister struct {
	*Runtime
	pods pleg.PodLister
}

// ListPod implements [pleg.PodLister].
func (l podLister) ListPod(ctx context.Context, uid pleg.PodUID) (pod *pleg.Pod, err error) {
	ctx, cancel := l.withListTimeout(ctx)
	defer cancel()
	err = l.call(ctx, "ListPod", uid, func() (err error) {
		pod, err = l.pods.ListPod(ctx, uid)
		return err
	})
	if err == nil && pod != nil && !isWellFormed(pod, uid) {
		err = errors.New("the runtime returned another pod, or one with a nil container or sandbox")
	}
	if err != nil {
		return nil, fmt.Errorf("list pod %s: %w", uid, err)
	}
	return pod, nil
}

type eventWatcher struct {
	*Runtime
	events pleg.EventWatcher
}

// WatchEvents implements [pleg.EventWatcher]. A status that is not the final one of the hint's
// container is left out.
func (w eventWatcher) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	err := w.call(ctx, "WatchEvents", "", func() error {
		return w.events.WatchEvents(ctx, opened, func(h pleg.Hint) {
			if s := h.Status; s != nil && (s.ID != h.Container || s.State != pleg.StateExited) {
				h.Status = nil
			}
			hint(h)
		})
	})
	if err == nil {
		return errors.New("the stream ended without an error")
	}
	return err
}

func (r *Runtime) withListTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.listTimeout, fmt.Errorf("no answer within the list timeout of %v", r.listTimeout))
}

var errGoexit = errors.New("the embedder's code called runtime.Goexit")

// call contains f. The error names the cause of ctx if ctx has ended.
func (r *Runtime) call(ctx context.Context, method string, uid pleg.PodUID, f func() error) error {
	err := Contain(r.log, method, uid, f)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Contain runs code of the embedder on a goroutine of its own, which alone it can end, and
// waits for it. A panic or a runtime.Goexit is an error, and logged.
func Contain(log *slog.Logger, method string, uid pleg.PodUID, f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit // unless f returns or panics
		defer func() { done <- err }()
		if caught := panics.Try(func() { err = f() }); caught != nil {
			log.Error("embedder's code panicked", "method", method, "podUID", uid, "err", caught.AsError())
			err = fmt.Errorf("panic: %v", caught.Value)
		}
	}()
	return <-done
}
