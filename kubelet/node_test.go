package kubelet_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
)

// node is the kubelet's fake runtime, with a status of its own for each pod.
// What it returns is made anew for each call and dated, as the runtime manager
// does.
type node struct {
	*containertest.FakeRuntime

	mu          sync.Mutex
	broken      map[types.UID]error
	delay       map[types.UID]time.Duration
	addressless map[types.UID]bool
	lists       time.Duration
	inspected   map[types.UID]int
	relisted    int
}

func newNode() *node {
	return &node{
		FakeRuntime: &containertest.FakeRuntime{},
		broken:      make(map[types.UID]error),
		delay:       make(map[types.UID]time.Duration),
		addressless: make(map[types.UID]bool),
		inspected:   make(map[types.UID]int),
	}
}

// set makes the node have a pod of these words, newest first; none remove it.
// A word is an id and a state, such as "c1=running"; "/s1=running" is a sandbox.
func (n *node) set(uid types.UID, words string) {
	n.Lock()
	defer n.Unlock()
	n.AllPodList = slices.DeleteFunc(n.AllPodList, func(p *containertest.FakePod) bool { return p.Pod.ID == uid })
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
	n.AllPodList = append(n.AllPodList, &containertest.FakePod{Pod: pod})
}

// fail has lists fail until err is nil.
func (n *node) fail(err error) {
	n.Lock()
	defer n.Unlock()
	n.Err = err
}

// breakPod has inspections of the pod fail until err is nil.
func (n *node) breakPod(uid types.UID, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[uid] = err
}

// strip takes the pod's address away, or gives it back.
func (n *node) strip(uid types.UID, stripped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addressless[uid] = stripped
}

// slow makes each inspection of the pod take a while.
func (n *node) slow(uid types.UID, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[uid] = d
}

// slowLists makes each list take a while.
func (n *node) slowLists(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists = d
}

// inspections returns how often the pod has been inspected.
func (n *node) inspections(uid types.UID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inspected[uid]
}

// relists returns how often one pod has been listed.
func (n *node) relists() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.relisted
}

func (n *node) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	began := time.Now()
	n.mu.Lock()
	lists := n.lists
	n.mu.Unlock()
	time.Sleep(lists)
	pods, err := n.FakeRuntime.GetPods(ctx, all)
	for i, pod := range pods {
		pods[i] = dated(pod, began)
	}
	return pods, err
}

func (n *node) GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	n.mu.Lock()
	n.relisted++
	n.mu.Unlock()
	pod, err := n.FakeRuntime.GetPod(ctx, uid)
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

// GetPodStatus has a status for each id of the pod: containers that have exited
// did so with code 3, a pod with a ready sandbox has an address, and a container
// named panic does what it says.
func (n *node) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	n.mu.Lock()
	n.inspected[pod.ID]++
	delay, err, addressless := n.delay[pod.ID], n.broken[pod.ID], n.addressless[pod.ID]
	n.mu.Unlock()
	time.Sleep(delay)
	if err != nil {
		return nil, err
	}
	status := &kubecontainer.PodStatus{ID: pod.ID, Name: pod.Name, Namespace: pod.Namespace, TimeStamp: pod.Timestamp}
	for _, c := range pod.Containers {
		if c.ID.ID == "panic" {
			panic("a container of this name")
		}
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
			if !addressless {
				status.IPs = []string{address(pod.ID)}
			}
		}
		status.SandboxStatuses = append(status.SandboxStatuses, s)
	}
	return status, nil
}

func address(uid types.UID) string { return "10.0.0." + string(uid) }
