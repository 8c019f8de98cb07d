package kubelet_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
)

// fakeRuntime is the kubelet's fake runtime with a status for each pod. Like the
// runtime manager, it returns new pods for each call, with the time of the call.
type fakeRuntime struct {
	*containertest.FakeRuntime

	mu     sync.Mutex
	faults map[types.UID]podFault
	lists  time.Duration
}

// podFault is how the inspections of a pod go: how long they take, the error, the status beside it,
// and whether the pod has no address.
type podFault struct {
	delay       time.Duration
	err         error
	partial     *kubecontainer.PodStatus
	addressless bool
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{FakeRuntime: &containertest.FakeRuntime{}, faults: make(map[types.UID]podFault)}
}

// set sets the containers of a pod, newest first, or removes the pod if words is
// empty. "c1=running" is a container and its state, "/s1=running" a sandbox. A blank is a pod
// that has neither.
func (r *fakeRuntime) set(uid types.UID, words string) {
	r.Lock()
	defer r.Unlock()
	r.AllPodList = slices.DeleteFunc(r.AllPodList, func(p *containertest.FakePod) bool { return p.Pod.ID == uid })
	if words == "" {
		return
	}
	pod := &kubecontainer.Pod{ID: uid, Name: string(uid), Namespace: "test"}
	for word := range strings.FieldsSeq(words) {
		id, state, _ := strings.Cut(word, "=")
		id, sandbox := strings.CutPrefix(id, "/")
		c := &kubecontainer.Container{
			ID: kubecontainer.ContainerID{Type: "fake", ID: id}, Name: "name of " + id, State: kubecontainer.State(state),
		}
		if sandbox {
			pod.Sandboxes = append(pod.Sandboxes, c)
		} else {
			pod.Containers = append(pod.Containers, c)
		}
	}
	r.AllPodList = append(r.AllPodList, &containertest.FakePod{Pod: pod})
}

// fail makes lists fail until err is nil.
func (r *fakeRuntime) fail(err error) {
	r.Lock()
	defer r.Unlock()
	r.Err = err
}

// disturb changes how inspections of the pod go.
func (r *fakeRuntime) disturb(uid types.UID, change func(f *podFault)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.faults[uid]
	change(&f)
	r.faults[uid] = f
}

// slow makes each inspection of the pod take this long.
func (r *fakeRuntime) slow(uid types.UID, d time.Duration) {
	r.disturb(uid, func(f *podFault) { f.delay = d })
}

// slowLists makes each list take this long.
func (r *fakeRuntime) slowLists(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = d
}

func (r *fakeRuntime) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	began := time.Now()
	r.mu.Lock()
	lists := r.lists
	r.mu.Unlock()
	time.Sleep(lists)
	pods, err := r.FakeRuntime.GetPods(ctx, all)
	for i, pod := range pods {
		pods[i] = dated(pod, began)
	}
	return pods, err
}

func (r *fakeRuntime) GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	pod, err := r.FakeRuntime.GetPod(ctx, uid)
	if err != nil {
		return nil, err
	}
	return dated(pod, time.Now()), nil
}

func dated(pod *kubecontainer.Pod, at time.Time) *kubecontainer.Pod {
	fresh := *pod
	fresh.Timestamp = at
	return &fresh
}

// GetPodStatus has a status for each container and sandbox. Exited containers have
// code 3, and a pod with a ready sandbox has an address.
func (r *fakeRuntime) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r.mu.Lock()
	fault := r.faults[pod.ID]
	r.mu.Unlock()
	time.Sleep(fault.delay)
	if fault.err != nil {
		return fault.partial, fault.err
	}
	status := &kubecontainer.PodStatus{ID: pod.ID, Name: pod.Name, Namespace: pod.Namespace, TimeStamp: pod.Timestamp}
	for _, c := range pod.Containers {
		s := &kubecontainer.Status{ID: c.ID, Name: c.Name, State: c.State}
		if c.State == kubecontainer.ContainerStateExited {
			s.ExitCode, s.Reason = 3, "Error"
		}
		status.ContainerStatuses = append(status.ContainerStatuses, s)
	}
	for _, c := range pod.Sandboxes {
		s := &runtimeapi.PodSandboxStatus{Id: c.ID.ID, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
		if c.State == kubecontainer.ContainerStateRunning {
			s.State = runtimeapi.PodSandboxState_SANDBOX_READY
			if !fault.addressless {
				status.IPs = []string{address(pod.ID)}
			}
		}
		status.SandboxStatuses = append(status.SandboxStatuses, s)
	}
	return status, nil
}

func address(uid types.UID) string { return "10.0.0." + string(uid) }

// recorder is the kubelet's pod cache. It records the times that the cache gets but
// does not return.
type recorder struct {
	kubecontainer.Cache
	// yields is how often a write lets other goroutines run first, such as the reader
	// of an event that does not wait for the write.
	yields int

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

func (r *recorder) yield() {
	for range r.yields {
		runtime.Gosched()
	}
}

func (r *recorder) Set(uid types.UID, status *kubecontainer.PodStatus, err error, at time.Time) bool {
	r.yield()
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
	r.yield()
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

// statusTime returns the time of the pod's status, and whether it has a status.
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

// backwardSteps returns how often an older time followed a newer time.
func (r *recorder) backwardSteps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backwards
}
