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

// rememberGone is for how long a pod that is gone is still given times of its
// own. A pod worker may wait for a newer time of it, and while some pod is being
// inspected the time of the cache does not come to its rescue.
const rememberGone = 10 * time.Minute

// store writes the kubelet's pod cache. That cache has one time for all pods,
// of which it promises that every pod is at least as new; the store moves it as
// far as the pod that is furthest behind, and gives the other pods their own.
type store struct {
	cache kubecontainer.Cache

	mu sync.Mutex // guards what follows, and keeps the order of writes
	// known has the newest time that the cache was told of each pod in it.
	known map[pleg.PodUID]time.Time
	// gone has when each pod of late was found gone.
	gone map[pleg.PodUID]time.Time
	// listed is the newest list of all pods, global the time of the cache.
	listed, global time.Time
	// behind has, for each pod whose change in the newest list is not in the
	// cache yet, the time up to which the cache is right about it.
	behind map[pleg.PodUID]time.Time
	// last is the number of pods in behind that keep global where it is.
	last int
	// unfinished are the lists that global has not reached, oldest first.
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

// Set implements [pipeline.Store]. Like GenericPLEG's, a status in the cache
// carries the time at which its pod was read.
func (s *store) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	native, read, err := nativeOf(status, err, at)
	s.cache.Set(types.UID(uid), native, err, read)
	s.known[uid] = read
	delete(s.gone, uid)
	s.applied(uid, at)
}

// nativeOf returns what the pod cache gets. The addresses are those of the
// pipeline, which keeps the last known ones of a pod that has lost them.
func nativeOf(status *pleg.PodStatus, err error, at time.Time) (*kubecontainer.PodStatus, time.Time, error) {
	if err != nil {
		if failed, ok := errors.AsType[*inspectionError](err); ok {
			return nil, failed.at, failed.err
		}
		return nil, at, err
	}
	got, ok := status.Native.(inspected)
	if !ok {
		return nil, at, errors.New("the status is not one of the kubelet's runtime")
	}
	native := got.status
	if len(native.IPs) == 0 && len(status.IPs) > 0 {
		kept := *native
		kept.IPs = status.IPs
		native = &kept
	}
	return native, got.at, nil
}

// Delete implements [pipeline.Store]. Who waits for the pod is released, with a
// status that has nothing but the UID.
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
	s.observe(uid, at)
	s.applied(uid, at)
}

// observe gives a pod a time of its own, unless it has a newer one.
func (s *store) observe(uid pleg.PodUID, at time.Time) {
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
		if at.Sub(when) > rememberGone {
			delete(s.gone, uid)
		}
	}
	s.advance()
	if s.global.Before(at) {
		s.observeCovered(at)
	}
}

// observeCovered gives a list's time to each pod that the list covers.
func (s *store) observeCovered(at time.Time) {
	for uid := range s.known {
		if _, pending := s.behind[uid]; !pending {
			s.observe(uid, at)
		}
	}
	for uid := range s.gone {
		if _, pending := s.behind[uid]; !pending {
			s.observe(uid, at)
		}
	}
}

// applied notes that the cache is right about a pod up to a time.
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

// advance moves the time of the cache as far as every pod allows.
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
