package kubelet

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// keepGone is how long a removed pod still gets its own times. A pod worker may wait
// for a newer time of that pod, and the time of the cache does not advance while
// another pod is being inspected.
const keepGone = 10 * time.Minute

// store writes the kubelet's pod cache. The cache keeps one time for all pods: each pod
// must be at least as new. The store sets it to the time of the oldest pod, and gives
// each newer pod its own time.
type store struct {
	cache kubecontainer.Cache

	mu sync.Mutex // guards the fields below, and orders the writes
	// known contains the newest time that the cache got for each of its pods.
	known map[pleg.PodUID]time.Time
	// gone contains the time of removal of recent pods.
	gone map[pleg.PodUID]time.Time
	// listed is the time of the newest list, global the time of the cache.
	listed, global time.Time
	// behind contains the pods whose change in the newest list is not in the cache yet,
	// with the time up to which the cache is correct about them.
	behind map[pleg.PodUID]time.Time
	// last is the number of pods in behind whose time is global.
	last int
	// unfinished are the times of the lists after global, oldest first.
	unfinished []time.Time
}

var _ pipeline.Store = (*store)(nil)

func newStore(cache kubecontainer.Cache) *store {
	return &store{
		cache:  cache,
		known:  make(map[pleg.PodUID]time.Time),
		gone:   make(map[pleg.PodUID]time.Time),
		behind: make(map[pleg.PodUID]time.Time),
	}
}

// Set implements [pipeline.Store]. As in GenericPLEG, the time of a status is the time at which its
// pod was listed.
func (s *store) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	native, read, err := nativeOf(status, err, at)
	s.cache.Set(types.UID(uid), native, err, read)
	s.known[uid] = read
	delete(s.gone, uid)
	s.applied(uid, at)
}

// nativeOf returns the status for the pod cache. The addresses come from the pipeline, which keeps the
// last known ones while no sandbox is ready.
func nativeOf(status *pleg.PodStatus, err error, at time.Time) (*kubecontainer.PodStatus, time.Time, error) {
	if err != nil {
		if failed, ok := errors.AsType[*inspectionError](err); ok {
			return failed.status, failed.at, failed.err
		}
		return nil, at, err
	}
	got, ok := status.Native.(inspected)
	if !ok {
		return nil, at, errors.New("the status is not from the kubelet's runtime")
	}
	native := got.status
	if len(native.IPs) == 0 && len(status.IPs) > 0 {
		kept := *native
		kept.IPs = status.IPs
		native = &kept
	}
	return native, got.listed, nil
}

// Delete implements [pipeline.Store]. Waiting GetNewerThan calls of the pod return,
// with a status that contains only the UID.
func (s *store) Delete(uid pleg.PodUID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.Delete(types.UID(uid))
	s.cache.SetObservedTime(types.UID(uid), at)
	delete(s.known, uid)
	s.gone[uid] = at
	s.applied(uid, at)
}

// Touch implements [pipeline.Store].
func (s *store) Touch(uid pleg.PodUID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPodTime(uid, at)
	s.applied(uid, at)
}

// setPodTime sets the time of a pod, unless its time is newer.
func (s *store) setPodTime(uid pleg.PodUID, at time.Time) {
	if have, ok := s.known[uid]; ok {
		if have.After(at) {
			return
		}
		s.known[uid] = at
	}
	s.cache.SetObservedTime(types.UID(uid), at)
}

// Observe implements [pipeline.Store].
func (s *store) Observe(at time.Time, pending []pleg.PodUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := make(map[pleg.PodUID]time.Time, len(pending))
	for _, uid := range pending {
		since, was := s.behind[uid]
		if !was {
			since = s.listed
		}
		behind[uid] = since
	}
	s.behind, s.listed, s.last = behind, at, 0
	s.unfinished = append(s.unfinished, at)
	for uid, when := range s.gone {
		if at.Sub(when) > keepGone {
			delete(s.gone, uid)
		}
	}
	s.advance()
	if s.global.Before(at) {
		s.setListedTime(at)
	}
}

// setListedTime gives each pod the time of the list, except pods that are behind.
func (s *store) setListedTime(at time.Time) {
	for uid := range s.known {
		if _, pending := s.behind[uid]; !pending {
			s.setPodTime(uid, at)
		}
	}
	for uid := range s.gone {
		if _, pending := s.behind[uid]; !pending {
			s.setPodTime(uid, at)
		}
	}
}

// applied records that the cache is correct about a pod up to a time.
func (s *store) applied(uid pleg.PodUID, at time.Time) {
	since, pending := s.behind[uid]
	switch {
	case !pending:
		return
	case !at.Before(s.listed):
		delete(s.behind, uid)
	case at.After(since):
		s.behind[uid] = at
	default:
		return
	}
	if since.After(s.global) {
		return
	}
	if s.last--; s.last <= 0 {
		s.advance()
	}
}

// advance sets the time of the cache to the time of the oldest pod.
func (s *store) advance() {
	to := s.listed
	s.last = 0
	for _, since := range s.behind {
		switch {
		case since.Before(to):
			to, s.last = since, 1
		case since.Equal(to):
			s.last++
		}
	}
	if !to.After(s.global) {
		return
	}
	s.global = to
	s.cache.UpdateTime(to)
	for len(s.unfinished) > 0 && !s.unfinished[0].After(to) {
		metrics.PLEGRelistDuration.Observe(time.Since(s.unfinished[0]).Seconds())
		s.unfinished = s.unfinished[1:]
	}
}
