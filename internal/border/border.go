// Package border stands between the embedder's [pleg.Runtime] and the stages.
//
// Whatever the runtime does, a call across the border returns an error instead of doing harm. Every
// call except the event stream has a deadline, and a call that ignores it is abandoned. A panic and
// a runtime.Goexit cost that call only, and an answer that no stage could work with is repaired or
// refused.
package border

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Options configure a [Runtime].
type Options struct {
	// ListTimeout ends a list of all pods or of one pod; positive.
	ListTimeout time.Duration
	// KubeletEvents: a container may move from one pod to another.
	KubeletEvents bool
	Logger        *slog.Logger
	Metrics       instrument.Registry
}

// Runtime calls the embedder's runtime. Its methods are safe for concurrent use
// and return at the latest a moment after their context has ended.
type Runtime struct {
	embedded      pleg.Runtime
	listTimeout   time.Duration
	kubeletEvents bool
	log           *slog.Logger
	malformed     prometheus.Counter
	items         items
	calls         calls
	report        atomic.Pointer[pleg.Report] // the last
}

// New returns the border around a runtime.
func New(embedded pleg.Runtime, o Options) (*Runtime, error) {
	s := o.Metrics.NewSet()
	r := &Runtime{
		embedded: embedded, listTimeout: o.ListTimeout, kubeletEvents: o.KubeletEvents, log: o.Logger,
		malformed: s.Counter("pleg_malformed_pods_total",
			"Pods and containers that the runtime lists without an id or with the id of another one."),
		items: items{uids: make(map[pleg.PodUID]struct{}), owners: make(owners), before: make(owners), told: make(map[badItem]struct{})},
		calls: calls{
			log: o.Logger, inFlight: make(map[subject]*inFlight),
		},
	}
	r.report.Store(&pleg.Report{})
	return r, s.Register()
}

// ListPods lists all pods. Items of the list without an id, or with the id of another item, are
// counted and logged. They are left out if their pod cannot contain them.
func (r *Runtime) ListPods(ctx context.Context) (pods []*pleg.Pod, err error) {
	ctx, cancel := r.withListTimeout(ctx)
	defer cancel()
	pods, err = call(ctx, r, subject{method: "ListPods"}, func() ([]*pleg.Pod, error) { return r.embedded.ListPods(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	yield()
	return r.wellFormed(ctx, pods), nil
}

// yields is more than the goroutines between the connection and the consumer of its events.
const yields = 8

// yield lets the ready goroutines run first: events that arrived before the answer are applied
// before it. On a node without CPU time they would otherwise come too late: only they contain the
// exit code of a removed container.
func yield() {
	for range yields {
		runtime.Gosched()
	}
}

// PodStatus inspects one pod. An inspection that takes longer than timeout fails.
func (r *Runtime) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus, timeout time.Duration) (status *pleg.PodStatus, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError{"the inspect timeout of ", timeout})
	defer cancel()
	status, err = call(ctx, r, subject{"PodStatus", pod.UID}, func() (*pleg.PodStatus, error) {
		return r.embedded.PodStatus(ctx, pod, last)
	})
	if err == nil {
		err = checkStatus(status, pod.UID)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect pod %s/%s (%s): %w", pod.Namespace, pod.Name, pod.UID, err)
	}
	return cutStatus(status), nil
}

// PodLister returns the runtime's [pleg.PodLister], or nil if there is none.
func (r *Runtime) PodLister() pleg.PodLister {
	if pods, ok := r.embedded.(pleg.PodLister); ok {
		return podLister{r, pods}
	}
	return nil
}

// EventWatcher returns the runtime's [pleg.EventWatcher], or nil if there is none.
func (r *Runtime) EventWatcher() pleg.EventWatcher {
	if events, ok := r.embedded.(pleg.EventWatcher); ok {
		return eventWatcher{r, events}
	}
	return nil
}

// Prober returns the runtime's [pleg.Prober], or nil if there is none.
func (r *Runtime) Prober() pleg.Prober {
	if p, ok := r.embedded.(pleg.Prober); ok {
		return prober{r, p}
	}
	return nil
}

type prober struct {
	*Runtime
	prober pleg.Prober
}

// probeTimeout is far longer than a healthy runtime takes for its cheapest call.
const probeTimeout = 3 * time.Second

// Probe implements [pleg.Prober].
func (p prober) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, timeoutError{"", probeTimeout})
	defer cancel()
	_, err := call(ctx, p.Runtime, subject{method: "Probe"}, func() (struct{}, error) { return struct{}{}, p.prober.Probe(ctx) })
	return err
}

// CallOf returns the first of the calls that is about the pod, or about all pods if uid is
// empty; nil if there is none.
func CallOf(calls []pleg.Call, uid pleg.PodUID) *pleg.Call {
	if i := slices.IndexFunc(calls, func(c pleg.Call) bool { return c.PodUID == uid }); i >= 0 {
		return &calls[i]
	}
	return nil
}

type podLister struct {
	*Runtime
	pods pleg.PodLister
}

// ListPod implements [pleg.PodLister].
func (l podLister) ListPod(ctx context.Context, uid pleg.PodUID) (pod *pleg.Pod, err error) {
	ctx, cancel := l.withListTimeout(ctx)
	defer cancel()
	pod, err = call(ctx, l.Runtime, subject{"ListPod", uid}, func() (*pleg.Pod, error) { return l.pods.ListPod(ctx, uid) })
	if err == nil && pod != nil && pod.UID != uid {
		err = fmt.Errorf("the runtime returned pod %s", pod.UID)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("list pod %s: %w", uid, err)
	case pod == nil:
		return nil, nil
	}
	yield()
	return l.wellFormedPod(ctx, pod), nil
}

type eventWatcher struct {
	*Runtime
	events pleg.EventWatcher
}

// WatchEvents implements [pleg.EventWatcher]. A status that is not the final one of its
// container is left out.
func (w eventWatcher) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	_, err := call(ctx, w.Runtime, subject{method: "WatchEvents"}, func() (struct{}, error) {
		return struct{}{}, w.events.WatchEvents(ctx, opened, func(h pleg.Hint) {
			final := func(s *pleg.ContainerStatus) bool { return s != nil && s.State == pleg.StateExited }
			if s := h.Status; final(s) && s.ID == h.Container {
				h.Status = cutContainer(s)
			} else {
				h.Status = nil
			}
			var others []*pleg.ContainerStatus // the slice is the Runtime's
			for _, s := range h.Others {
				if final(s) && s.ID != "" && s.ID != h.Container {
					others = append(others, cutContainer(s))
				}
			}
			h.Others = others
			hint(h)
		})
	})
	if err == nil {
		return errors.New("the stream ended without an error")
	}
	return err
}

func (r *Runtime) withListTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.listTimeout, timeoutError{"the list timeout of ", r.listTimeout})
}
