// Package plegtest contains a container runtime in memory, with which an embedder of
// the pipeline tests his own code.
//
// [Runtime] implements [pleg.Runtime], [pleg.PodLister] and [pleg.EventWatcher].
// A test sets its pods, makes calls fail, hang or panic with a [Fault], sends CRI
// events, and reads how often the pipeline called it. [Pod], [Status] and [Words]
// convert between pods, statuses, events and a short notation, so that a test
// says "c1=running c2=exited:137:OOMKilled /s1=exited" instead of building structures.
// [CheckRuntime] tests a runtime of the embedder's own.
//
// [Runtime] starts no goroutine, and only [Delay] waits for time to pass: tests that run in
// a testing/synctest bubble need no real time.
package plegtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Address is the address of every pod with a ready sandbox.
const Address = "10.0.0.1"

// Runtime is a container runtime in memory. All methods are safe for concurrent
// use. Create it with [New]. It holds nothing that must be closed.
type Runtime struct {
	mu       sync.Mutex
	pods     []*pleg.Pod // in the order in which they were added
	list     []*pleg.Pod // instead of pods, if not nil
	statuses map[pleg.PodUID]*pleg.PodStatus
	details  func(*pleg.PodStatus)

	listFault, inspectFault, watchFault Fault
	podFaults                           map[pleg.PodUID]Fault

	counts   Counts
	watchers []*watcher
}

// Counts are the calls that a [Runtime] got.
type Counts struct {
	// Lists and PodLists are the calls of ListPods and ListPod.
	Lists, PodLists int
	// Inspections are the calls of PodStatus for each pod.
	Inspections map[pleg.PodUID]int
	// InFlight is the number of inspections that have not returned.
	InFlight int
}

var (
	_ pleg.Runtime      = (*Runtime)(nil)
	_ pleg.PodLister    = (*Runtime)(nil)
	_ pleg.EventWatcher = (*Runtime)(nil)
)

// New returns a runtime without pods.
func New() *Runtime {
	return &Runtime{
		statuses:  make(map[pleg.PodUID]*pleg.PodStatus),
		podFaults: make(map[pleg.PodUID]Fault),
		counts:    Counts{Inspections: make(map[pleg.PodUID]int)},
	}
}

// Basic returns the runtime with only the methods of [pleg.Runtime]: it can neither list a single
// pod nor send CRI events.
func (r *Runtime) Basic() pleg.Runtime { return struct{ pleg.Runtime }{r} }

// Set adds the pod that [Pod] makes of words, or replaces the pod of that UID. The CreatedAt of its
// sandboxes is the present time. If words are empty, Set removes the pod.
func (r *Runtime) Set(uid pleg.PodUID, words string) {
	if strings.TrimSpace(words) == "" {
		r.Remove(uid)
		return
	}
	pod := Pod(uid, words)
	for _, sandbox := range pod.Sandboxes {
		sandbox.CreatedAt = time.Now()
	}
	r.SetPod(pod)
}

// SetPod adds the pod, or replaces the pod of that UID. The pod must not be
// modified after that.
func (r *Runtime) SetPod(pod *pleg.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.index(pod.UID); i >= 0 {
		r.pods[i] = pod
		return
	}
	r.pods = append(r.pods, pod)
}

// Remove removes the pod, if it is there.
func (r *Runtime) Remove(uid pleg.PodUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.index(uid); i >= 0 {
		r.pods = slices.Delete(r.pods, i, i+1)
	}
}

func (r *Runtime) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *Runtime) index(uid pleg.PodUID) int {
	return slices.IndexFunc(r.pods, func(p *pleg.Pod) bool { return p.UID == uid })
}

// SetList makes ListPods return exactly these pods, even if they are malformed; ListPod goes on
// with the pods of the runtime. If pods is nil, ListPods returns the pods of the runtime again.
func (r *Runtime) SetList(pods []*pleg.Pod) {
	r.locked(func() { r.list = pods })
}

// SetStatus makes inspections of the pod return exactly this status, even if it is
// malformed. If status is nil, they return the status of the pod again.
func (r *Runtime) SetStatus(uid pleg.PodUID, status *pleg.PodStatus) {
	r.locked(func() { r.statuses[uid] = status })
}

// SetDetails adds details, such as images, times or annotations: the runtime calls set for each
// status that it makes, before it returns or sends the status, one call at a time. It does not call
// set for the status of [Runtime.SetStatus]. set must not call the runtime. If set is nil, no
// details are added.
func (r *Runtime) SetDetails(set func(*pleg.PodStatus)) {
	r.locked(func() { r.details = set })
}

// SetListFault sets the fault of ListPods and ListPod; nil ends it. Calls that are
// already running keep theirs.
func (r *Runtime) SetListFault(f Fault) {
	r.locked(func() { r.listFault = f })
}

// SetInspectFault sets the fault of all inspections; nil ends it. Inspections that
// are already running keep theirs.
func (r *Runtime) SetInspectFault(f Fault) {
	r.locked(func() { r.inspectFault = f })
}

// SetPodFault sets the fault of the inspections of one pod; nil ends it. It happens after the fault
// of [Runtime.SetInspectFault].
func (r *Runtime) SetPodFault(uid pleg.PodUID, f Fault) {
	r.locked(func() { r.podFaults[uid] = f })
}

// Counts returns a copy of the counts since [New].
func (r *Runtime) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Inspections = maps.Clone(c.Inspections)
	return c
}

// ListPods implements [pleg.Runtime]. It returns the pods as they are when it is
// called, in the order in which they were added, whatever happens until it
// returns.
func (r *Runtime) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	r.mu.Lock()
	r.counts.Lists++
	pods, fault := slices.Clone(r.pods), r.listFault
	if r.list != nil {
		pods = slices.Clone(r.list)
	}
	r.mu.Unlock()
	if err := happen(ctx, fault); err != nil {
		return nil, err
	}
	return pods, nil
}

// ListPod implements [pleg.PodLister].
func (r *Runtime) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	r.mu.Lock()
	r.counts.PodLists++
	var pod *pleg.Pod
	if i := r.index(uid); i >= 0 {
		pod = r.pods[i]
	}
	fault := r.listFault
	r.mu.Unlock()
	if err := happen(ctx, fault); err != nil {
		return nil, err
	}
	return pod, nil
}

// PodStatus implements [pleg.Runtime]. It returns the [Status] of the pod as it was
// listed, with [Address] if a sandbox is ready.
func (r *Runtime) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	faults := r.startInspection(pod.UID)
	defer r.locked(func() { r.counts.InFlight-- })
	if err := happen(ctx, faults...); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.statuses[pod.UID]; s != nil {
		return s, nil
	}
	return r.statusOf(pod), nil
}

func (r *Runtime) startInspection(uid pleg.PodUID) []Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Inspections[uid]++
	r.counts.InFlight++
	return []Fault{r.inspectFault, r.podFaults[uid]}
}

// happen returns the error of the first fault that returns one. Without a fault, a call fails if
// its context has ended.
func happen(ctx context.Context, faults ...Fault) error {
	err := ctx.Err()
	for _, f := range faults {
		if f == nil {
			continue
		}
		if err = f(ctx); err != nil {
			break
		}
	}
	return err
}

// statusOf is called with mu held.
func (r *Runtime) statusOf(pod *pleg.Pod) *pleg.PodStatus {
	var addresses []string
	if slices.ContainsFunc(pod.Sandboxes, func(s *pleg.Container) bool { return s.State == pleg.StateRunning }) {
		addresses = []string{Address}
	}
	status := Status(pod, addresses...)
	if r.details != nil {
		r.details(status)
	}
	return status
}
