package pipeline

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Store is a status cache of the embedder, such as the kubelet's
// kubecontainer.Cache, that is written beside the pipeline's own. Two goroutines of
// the pipeline call its methods and wait for them: they must be safe for concurrent
// use and return soon. Calls for one pod come in the order of their times, each
// before the events that follow from it. A call that panics or ends its goroutine is logged.
type Store interface {
	// Set stores the result of an inspection: a status or an error. at is the time
	// of the observation that led to it.
	Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time)
	// Delete removes a pod; the observation made at that time found it gone.
	Delete(uid pleg.PodUID, at time.Time)
	// Touch notes that the observation made at that time found the pod unchanged.
	Touch(uid pleg.PodUID, at time.Time)
	// Observe notes a list of all pods. It covers every pod except those in
	// pending, whose change is not inspected yet. The slice must not be kept.
	Observe(at time.Time, pending []pleg.PodUID)
}

// stores writes the cache, the embedder's store and, once somebody looks up a container, the
// index for that.
type stores struct {
	*cache.Cache
	own   Store
	index *atomic.Pointer[lookup.Index]
	log   *slog.Logger
}

// also calls the embedder's store, if there is one. A panic of it ends that call alone.
func (s stores) also(method string, uid pleg.PodUID, f func()) {
	if s.own != nil {
		if err := border.Contain(s.log, method, uid, func() error { f(); return nil }); err != nil {
			s.log.Error("Options.Store has failed", "method", method, "podUID", uid, "err", err)
		}
	}
}

func (s stores) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	s.Cache.Set(uid, status, err, at)
	if x := s.index.Load(); x != nil && status != nil {
		x.Set(status)
	}
	s.also("Store.Set", uid, func() { s.own.Set(uid, status, err, at) })
}

func (s stores) Delete(uid pleg.PodUID, at time.Time) {
	s.Cache.Delete(uid, at)
	if x := s.index.Load(); x != nil {
		x.Delete(uid)
	}
	s.also("Store.Delete", uid, func() { s.own.Delete(uid, at) })
}

func (s stores) Touch(uid pleg.PodUID, at time.Time) {
	s.Cache.Touch(uid, at)
	s.also("Store.Touch", uid, func() { s.own.Touch(uid, at) })
}

func (s stores) Observe(at time.Time, pending []*pleg.Pod) {
	s.Cache.Observe(at, pending)
	s.also("Store.Observe", "", func() {
		uids := make([]pleg.PodUID, len(pending))
		for n, pod := range pending {
			uids[n] = pod.UID
		}
		s.own.Observe(at, uids)
	})
}
