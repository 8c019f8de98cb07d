package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// podFault describes the inspections of a pod: their duration, the error, the status beside it, whether the
// address is missing, and what is added to the status.
type podFault struct {
	delay       time.Duration
	err         error
	partial     *kubecontainer.PodStatus
	addressless bool
	added       func(*kubecontainer.PodStatus)
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{FakeRuntime: &containertest.FakeRuntime{}, faults: make(map[types.UID]podFault)}
}

// set sets the containers of a pod, newest first, or removes the pod if words is
// empty. "c1=running" is a container and its state, "/s1=running" a sandbox. A blank is a pod
// without either.
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

// disturb sets the fault of the pod's inspections.
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
	r.mu.Lock()
	lists := r.lists
	r.mu.Unlock()
	time.Sleep(lists)
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

// GetPodStatus returns a status for each container and sandbox. It contains code 3 for an exited
// container, and an address if a sandbox is ready.
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
	if fault.added != nil {
		fault.added(status)
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
	// set contains the time of each pod's status, seen the newest time of each pod alone.
	// all is the time of all pods.
	set, seen map[types.UID]time.Time
	all       time.Time
	backwards int
	// strangers is the number of times for pods without a status.
	strangers int
}

func newRecorder() *recorder {
	return &recorder{
		Cache: kubecontainer.NewCache(),
		set:   make(map[types.UID]time.Time),
		seen:  make(map[types.UID]time.Time),
	}
}

// status calls Get. From Kubernetes 1.38 on, it takes a context.
func (r *recorder) status(uid types.UID) (*kubecontainer.PodStatus, error) {
	switch get := any(r.Get).(type) {
	case func(types.UID) (*kubecontainer.PodStatus, error):
		return get(uid)
	case func(context.Context, types.UID) (*kubecontainer.PodStatus, error):
		return get(context.Background(), uid)
	default:
		panic(fmt.Sprintf("the pod cache has a Get of type %T", get))
	}
}

// newerThan calls GetNewerThan, as status calls Get.
func (r *recorder) newerThan(uid types.UID, at time.Time) (*kubecontainer.PodStatus, error) {
	switch get := any(r.GetNewerThan).(type) {
	case func(types.UID, time.Time) (*kubecontainer.PodStatus, error):
		return get(uid, at)
	case func(context.Context, types.UID, time.Time) (*kubecontainer.PodStatus, error):
		return get(context.Background(), uid, at)
	default:
		panic(fmt.Sprintf("the pod cache has a GetNewerThan of type %T", get))
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
	} else {
		r.strangers++
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

// statusTime returns the time of the pod's status, and whether there is one.
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

// strangerTimes returns how many times pods without a status got.
func (r *recorder) strangerTimes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.strangers
}

// randomPods is the number of pods. It is small, so that each changes often.
const randomPods = 5

var (
	errInspect = errors.New("inspection fails")
	errList    = errors.New("list fails")
)

var states = []string{"running", "exited", "created", "unknown"}

// random changes two runtimes in the same random way. A container may also start
// again or come back, which no real runtime allows.
type random struct {
	rand     *rand.Rand
	runtimes []*fakeRuntime
	// pods contains the words of [fakeRuntime.set] for each pod.
	pods    map[types.UID][]string
	broken  map[types.UID]bool
	failing bool
	// absent are removed pods that must not come back yet.
	absent map[types.UID]bool
}

func newRandom(seed uint64, runtimes ...*fakeRuntime) *random {
	return &random{
		rand: rand.New(rand.NewPCG(seed, 0)), runtimes: runtimes, pods: make(map[types.UID][]string),
		broken: make(map[types.UID]bool), absent: make(map[types.UID]bool),
	}
}

func (w *random) uids() []types.UID {
	uids := make([]types.UID, randomPods)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint(i))
	}
	return uids
}

func (w *random) anyPod() types.UID { return w.uids()[w.rand.IntN(randomPods)] }

// each calls do with both runtimes.
func (w *random) each(do func(*fakeRuntime)) {
	for _, r := range w.runtimes {
		do(r)
	}
}

// mutate makes one change and returns its description.
func (w *random) mutate() string {
	uid := w.anyPod()
	switch w.rand.IntN(12) {
	case 0:
		w.broken[uid] = !w.broken[uid]
		var err error
		if w.broken[uid] {
			err = errInspect
		}
		w.each(func(r *fakeRuntime) { r.disturb(uid, func(f *podFault) { f.err = err }) })
		return fmt.Sprintf("pod %s broken %v", uid, w.broken[uid])
	case 1:
		return w.failLists(w.rand.IntN(2) == 0)
	case 2:
		stripped := w.rand.IntN(2) == 0
		w.each(func(r *fakeRuntime) { r.disturb(uid, func(f *podFault) { f.addressless = stripped }) })
		return fmt.Sprintf("pod %s without address %v", uid, stripped)
	case 3:
		return w.put(uid, nil)
	default:
		return w.put(uid, w.change(slices.Clone(w.pods[uid])))
	}
}

func (w *random) failLists(failing bool) string {
	w.failing = failing
	var err error
	if failing {
		err = errList
	}
	w.each(func(r *fakeRuntime) { r.fail(err) })
	return fmt.Sprintf("lists failing %v", failing)
}

func (w *random) put(uid types.UID, words []string) string {
	if w.absent[uid] && len(w.pods[uid]) == 0 {
		return fmt.Sprintf("pod %s stays absent", uid)
	}
	w.pods[uid] = words
	text := strings.Join(words, " ")
	w.each(func(r *fakeRuntime) { r.set(uid, text) })
	return fmt.Sprintf("pod %s is %q", uid, text)
}

// change adds, removes, changes or moves containers and sandboxes.
func (w *random) change(words []string) []string {
	for range 1 + w.rand.IntN(3) {
		if len(words) == 0 || w.rand.IntN(3) == 0 {
			words = w.add(words)
			continue
		}
		i := w.rand.IntN(len(words))
		switch w.rand.IntN(4) {
		case 0:
			words = slices.Delete(words, i, i+1)
		case 1:
			words[0], words[i] = words[i], words[0]
		default:
			id, _, _ := strings.Cut(words[i], "=")
			words[i] = id + "=" + w.state()
		}
	}
	return words
}

func (w *random) add(words []string) []string {
	id := fmt.Sprintf("c%d", w.rand.IntN(4))
	if w.rand.IntN(3) == 0 {
		id = fmt.Sprintf("/s%d", w.rand.IntN(2))
	}
	if slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, id+"=") }) {
		return words
	}
	return append([]string{id + "=" + w.state()}, words...)
}

// state returns running or exited most of the time.
func (w *random) state() string {
	if w.rand.IntN(4) > 0 {
		return states[w.rand.IntN(2)]
	}
	return states[w.rand.IntN(len(states))]
}
