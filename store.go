package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Store is a status cache of the embedder, such as the kubelet's kubecontainer.Cache. The pipeline
// writes it beside its own cache. Its methods must be safe for concurrent use and return soon: two
// stages wait for them. A call that takes a second is logged with its method; if it still runs a
// second after the context of Run has ended, Run names it and returns. Calls for one pod come in the
// order of their times, each before the events that follow from it. If a call panics, that is logged,
// and the pipeline goes on.
type Store interface {
	// Set stores the result of an inspection: a status, or an error and a nil status. The status
	// is read-only. at is the time before the list that led to the inspection.
	Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time)
	// Delete removes a pod: a list that began at that time did not show it.
	Delete(uid pleg.PodUID, at time.Time)
	// Touch notes that a list that began at that time showed the pod as it was last inspected.
	Touch(uid pleg.PodUID, at time.Time)
	// Observe notes a list of all pods that began at that time: the store is true for that time,
	// except for the pods in pending, whose change is not inspected yet. Observe must not keep
	// the slice.
	Observe(at time.Time, pending []pleg.PodUID)
}

// stores writes the cache, the embedder's store and the index for lookups. The index is written
// before the cache: a lookup that finds a pod inspected in the cache also finds it in the index.
type stores struct {
	*podcache.Cache
	own   Store
	index *containerindex.Index
	log   *slog.Logger
	// ending is closed some time after the context of Run has ended: nobody waits for the store then.
	ending chan struct{}
	// left is the first call that nobody waits for.
	left atomic.Pointer[error]
}

// storeGrace is how long a call of the embedder's store may take before it is logged, and before it is
// left once the context of Run has ended.
const storeGrace = time.Second

// also calls the embedder's store. A panic of the store ends that call alone.
func (s *stores) also(method string, uid pleg.PodUID, f func()) {
	if s.own == nil || s.left.Load() != nil {
		return
	}
	done := border.Start(s.log, method, uid, func() error { f(); return nil })
	select {
	case err := <-done:
		s.ended(method, uid, err)
		return
	case <-time.After(storeGrace):
	case <-s.ending:
	}
	select {
	case err := <-done:
		s.ended(method, uid, err)
		return
	default:
	}
	s.log.Warn("Options.Store does not return, the pipeline waits", "method", method, "podUID", uid)
	select {
	case err := <-done:
		s.ended(method, uid, err)
	case <-s.ending:
		err := fmt.Errorf("Options.Store has not returned from %s", method)
		s.left.CompareAndSwap(nil, &err)
	}
}

func (s *stores) ended(method string, uid pleg.PodUID, err error) {
	if err != nil {
		s.log.Error("Options.Store has failed", "method", method, "podUID", uid, "err", err)
	}
}

// endWith closes ending some time after ctx has ended, until stop is called.
func (s *stores) endWith(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		select {
		case <-time.After(storeGrace):
			close(s.ending)
		case <-done:
		}
	}()
	return func() { close(done) }
}

// abandoned returns an error that names the method that nobody waits for; nil if there is none.
func (s *stores) abandoned() error {
	if err := s.left.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *stores) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	if status != nil {
		s.index.Set(status)
	}
	s.Cache.Set(uid, status, err, at)
	s.also("Store.Set", uid, func() { s.own.Set(uid, status, err, at) })
}

func (s *stores) Delete(uid pleg.PodUID, at time.Time) {
	s.index.Delete(uid)
	s.Cache.Delete(uid, at)
	s.also("Store.Delete", uid, func() { s.own.Delete(uid, at) })
}

func (s *stores) Touch(uid pleg.PodUID, at time.Time) {
	s.Cache.Touch(uid, at)
	s.also("Store.Touch", uid, func() { s.own.Touch(uid, at) })
}

func (s *stores) Observe(at time.Time, pending []*pleg.Pod) {
	s.Cache.Observe(at, pending)
	s.also("Store.Observe", "", func() {
		uids := make([]pleg.PodUID, len(pending))
		for n, pod := range pending {
			uids[n] = pod.UID
		}
		s.own.Observe(at, uids)
	})
}

// Lookup says which container and pod a container id, a process or a cgroup belongs to. A container
// is known before the event of its start is delivered, and for [lookup.KeepRemoved] after its
// removal. If the inspection of its pod fails, or hangs for a second, Lookup returns the facts of
// the list.
//
// A call takes microseconds, and milliseconds for a Query.Cgroup without CAP_DAC_READ_SEARCH: then
// all cgroups are searched. With Query.Wait it blocks for at most that time while the container is
// not known, and requests a list of all pods.
//
// The error wraps [pleg.ErrInvalidOption], [lookup.ErrNoContainer] or [lookup.ErrNotYet]; until the
// first list of all pods is committed it wraps [pleg.ErrNotSynced] too. For a container that is not
// known it wraps [pleg.ErrStopped] once Run has returned, or the cause of ctx.
func (p *Pipeline) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	c, err := containerindex.Host{}.Lookup(ctx, p.index, q)
	if errors.Is(err, lookup.ErrNotYet) && !p.cache.IsSynced() {
		err = fmt.Errorf("%w: %w", err, pleg.ErrNotSynced)
	}
	return c, err
}
