package kubelet_test

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// recorder is the kubelet's pod cache. It records the times that the cache gets but
// does not return.
type recorder struct {
	kubecontainer.Cache

	mu sync.Mutex
	// set has the time of each pod's status, seen the newest time of each pod alone.
	// all is the time of all pods.
	set, seen map[types.UID]time.Time
	all       time.Time
	backwards int
}

func newRecorder() *recorder {
	return &recorder{
		Cache: kubecontainer.NewCache(),
		set:   make(map[types.UID]time.Time),
		seen:  make(map[types.UID]time.Time),
	}
}

func (r *recorder) Set(uid types.UID, status *kubecontainer.PodStatus, err error, at time.Time) bool {
	r.mu.Lock()
	if at.Before(r.set[uid]) {
		r.backwards++
	}
	r.set[uid], r.seen[uid] = at, at
	r.mu.Unlock()
	return r.Cache.Set(uid, status, err, at)
}

func (r *recorder) SetObservedTime(uid types.UID, at time.Time) {
	r.mu.Lock()
	if at.Before(r.seen[uid]) {
		r.backwards++
	}
	if _, ok := r.set[uid]; ok {
		r.seen[uid] = at
	}
	r.mu.Unlock()
	r.Cache.SetObservedTime(uid, at)
}

func (r *recorder) Delete(uid types.UID) {
	r.mu.Lock()
	delete(r.set, uid)
	delete(r.seen, uid)
	r.mu.Unlock()
	r.Cache.Delete(uid)
}

func (r *recorder) UpdateTime(at time.Time) {
	r.mu.Lock()
	if at.Before(r.all) {
		r.backwards++
	}
	r.all = at
	r.mu.Unlock()
	r.Cache.UpdateTime(at)
}

// statusTime returns the time of the pod's status, and whether it has one.
func (r *recorder) statusTime(uid types.UID) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.set[uid]
	return at, ok
}

// newest returns the time up to which the cache is correct about the pod.
func (r *recorder) newest(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen := r.seen[uid]; seen.After(r.all) {
		return seen
	}
	return r.all
}

// cacheTime returns the time of all pods.
func (r *recorder) cacheTime() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// backwardSteps returns how often an older time followed a newer one.
func (r *recorder) backwardSteps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backwards
}
