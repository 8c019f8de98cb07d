package kubelet

import (
	"sync"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// reported is what successive runs share about the pods: what the kubelet has been
// told, and which reinspections are due. A run begins with it.
type reported struct {
	mu       sync.Mutex // guards what follows
	settled  map[pleg.PodUID]*kubecontainer.Pod
	requests map[pleg.PodUID]struct{}
}

func newReported() *reported {
	return &reported{settled: make(map[pleg.PodUID]*kubecontainer.Pod), requests: make(map[pleg.PodUID]struct{})}
}

// pods returns the pods as they were when their last events were sent.
func (r *reported) pods() []*pleg.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := make([]*pleg.Pod, 0, len(r.settled))
	for _, native := range r.settled {
		pods = append(pods, podOf(native))
	}
	return pods
}

// reinspections returns the pods that are to be inspected even if they have not
// changed.
func (r *reported) reinspections() []pleg.PodUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := make([]pleg.PodUID, 0, len(r.requests))
	for uid := range r.requests {
		uids = append(uids, uid)
	}
	return uids
}

// requestReinspect notes a request, or an inspection that failed.
func (r *reported) requestReinspect(uid pleg.PodUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[uid] = struct{}{}
}

// inspecting notes that an inspection begins, which serves earlier requests.
func (r *reported) inspecting(uid pleg.PodUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, uid)
}

// settle notes that the events of a pod are on their way.
func (r *reported) settle(uid pleg.PodUID, pod *kubecontainer.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[uid] = pod
}

// remove notes that a pod is gone.
func (r *reported) remove(uid pleg.PodUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.settled, uid)
	delete(r.requests, uid)
}
