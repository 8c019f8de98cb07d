package cri_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// carryingAnswer adds the statuses of containers to the answer of a sandbox, as of now.
func carryingAnswer(answer *runtimeapi.PodSandboxStatusResponse, containers ...*runtimeapi.ContainerStatus) *runtimeapi.PodSandboxStatusResponse {
	return &runtimeapi.PodSandboxStatusResponse{Status: answer.GetStatus(), ContainersStatuses: containers, Timestamp: time.Now().UnixNano()}
}

func containerAnswer(id string) *runtimeapi.ContainerStatusResponse {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
}

// What one inspection of a pod asks for. The pod has the sandbox s1 and the containers
// c1 and c2, which run.
func TestPodStatusCalls(t *testing.T) {
	ready := func(ips ...string) *pleg.PodStatus {
		return &pleg.PodStatus{UID: "u1", Sandboxes: []*pleg.SandboxStatus{{ID: "s1", Ready: true, IPs: ips}}}
	}
	host := ready()
	host.Sandboxes[0].HostNetwork = true
	dead := ready("10.0.0.1")
	dead.Sandboxes[0].Ready = false
	exited := ready("10.0.0.1")
	exited.Containers = []*pleg.ContainerStatus{{ID: "c1", State: pleg.StateExited}}
	end := time.Now()
	killed := func(observed time.Duration) *pleg.PodStatus {
		st := ready("10.0.0.1")
		st.ObservedAt = end.Add(observed)
		st.Containers = []*pleg.ContainerStatus{{ID: "c1", State: pleg.StateExited, ExitCode: 137, Reason: "Error", FinishedAt: end}}
		return st
	}
	both := []string{"c1", "c2"}
	for _, test := range []struct {
		name    string
		carries bool
		last    *pleg.PodStatus
		exited  bool // c1 is listed as exited
		want    []string
	}{
		{name: "nothing is known", want: []string{"c1", "c2", "s1"}},
		{name: "the sandbox is as ready as before", last: ready("10.0.0.1"), want: both},
		{name: "it needs no address", last: host, want: both},
		{name: "it had no address", last: ready(), want: []string{"c1", "c2", "s1"}},
		{name: "it was dead", last: dead, want: []string{"c1", "c2", "s1"}},
		{name: "another sandbox had the address", last: &pleg.PodStatus{Sandboxes: []*pleg.SandboxStatus{{ID: "s0", Ready: true, IPs: []string{"10.0.0.9"}}}}, want: []string{"c1", "c2", "s1"}},
		{name: "a container had exited", last: exited, exited: true, want: []string{"c2"}},
		{name: "a container had been killed", last: killed(2 * time.Second), exited: true, want: []string{"c2"}},
		{name: "a container had been killed just before", last: killed(100 * time.Millisecond), exited: true, want: both},
		{name: "carried, nothing is known", carries: true, want: []string{"s1"}},
		{name: "carried, the sandbox is as ready as before", carries: true, last: ready("10.0.0.1"), want: []string{"s1"}},
		{name: "carried, one container is left", carries: true, last: exited, exited: true, want: []string{"c2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{"c1": containerAnswer("c1"), "c2": containerAnswer("c2")}}
			runtime := fake.runtime()
			runtime.sandboxStatus = func(context.Context, string) (*runtimeapi.PodSandboxStatusResponse, error) {
				answer := sandboxStatus("s1", true, 1, "10.0.0.1")
				if test.carries {
					answer = carryingAnswer(answer, containerAnswer("c1").GetStatus(), containerAnswer("c2").GetStatus())
				}
				return answer, fake.answer("s1", true)
			}
			client := connect(t, runtime, cri.Options{})
			listed := pod([]string{"s1"}, []string{"c1", "c2"})
			for _, c := range listed.Containers {
				c.SandboxID = "s1"
			}
			_, err := client.PodStatus(t.Context(), listed, nil) // the client learns what is carried
			must(t, err)
			if test.carries && len(fake.asked) != 1 {
				t.Errorf("the first inspection asked for %q, want s1", fake.asked)
			}
			if test.exited {
				listed.Containers[0].State = pleg.StateExited
			}
			fake.asked = nil
			st, err := client.PodStatus(t.Context(), listed, test.last)
			must(t, err)
			slices.Sort(fake.asked)
			if !slices.Equal(fake.asked, test.want) {
				t.Errorf("asked for %q, want %q", fake.asked, test.want)
			}
			if len(st.Containers) != 2 || len(st.Sandboxes) != 1 {
				t.Errorf("got %d containers and %d sandboxes, want 2 and 1", len(st.Containers), len(st.Sandboxes))
			}
		})
	}
}

// Carried statuses that cannot be used are asked for one by one.
func TestUnusableCarriedStatus(t *testing.T) {
	running, lie := containerAnswer("c1").GetStatus(), &runtimeapi.ContainerStatus{Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 9}
	for name, answer := range map[string]func() *runtimeapi.PodSandboxStatusResponse{
		"none": func() *runtimeapi.PodSandboxStatusResponse { return carryingAnswer(sandboxStatus("s1", true, 1)) },
		"an empty one": func() *runtimeapi.PodSandboxStatusResponse {
			return carryingAnswer(sandboxStatus("s1", true, 1), &runtimeapi.ContainerStatus{})
		},
		"two of one id": func() *runtimeapi.PodSandboxStatusResponse {
			return carryingAnswer(sandboxStatus("s1", true, 1), lie, running)
		},
		"unknown state": func() *runtimeapi.PodSandboxStatusResponse {
			return carryingAnswer(sandboxStatus("s1", true, 1), &runtimeapi.ContainerStatus{Id: "c1", State: 99})
		},
		"gathered before the call": func() *runtimeapi.PodSandboxStatusResponse {
			a := carryingAnswer(sandboxStatus("s1", true, 1), lie)
			a.Timestamp -= int64(time.Hour)
			return a
		},
		"without a time": func() *runtimeapi.PodSandboxStatusResponse {
			a := carryingAnswer(sandboxStatus("s1", true, 1), lie)
			a.Timestamp = 0
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{"c1": containerAnswer("c1")}}
			runtime := fake.runtime()
			runtime.sandboxStatus = func(context.Context, string) (*runtimeapi.PodSandboxStatusResponse, error) { return answer(), nil }
			client := connect(t, runtime, cri.Options{})
			listed := pod([]string{"s1"}, []string{"c1"})
			listed.Containers[0].SandboxID = "s1"
			st, err := client.PodStatus(t.Context(), listed, nil)
			must(t, err)
			if len(st.Containers) != 1 || st.Containers[0].State != pleg.StateRunning || len(fake.asked) != 1 {
				t.Errorf("got %+v with calls for %q, want c1 running, from a call of its own", st.Containers, fake.asked)
			}
		})
	}
}

// On random histories, an inspection with the last status of the pod returns what one
// returns that asks for everything. The runtime carries statuses never, always, or now
// and then, and some of what it carries is unusable.
func TestPodStatusEqualsAllCalls(t *testing.T) {
	for carries, name := range []string{"never", "always", "sometimes"} {
		t.Run(name, func(t *testing.T) {
			saved := 0
			for seed := range uint64(15) {
				saved += compareWithAllCalls(t, seed, carries)
			}
			if saved == 0 {
				t.Error("no call was saved")
			}
		})
	}
}

// compareWithAllCalls returns how many calls a history saved.
func compareWithAllCalls(t *testing.T, seed uint64, carries int) (saved int) {
	t.Helper()
	w := &onePod{rng: rand.New(rand.NewPCG(seed, uint64(carries))), of: make(map[string]string)}
	client, full := connect(t, w.runtime(), cri.Options{}), connect(t, w.runtime(), cri.Options{})
	var last *pleg.PodStatus
	for step := range 40 {
		w.carries = carries == 1 || carries == 2 && w.rng.IntN(2) == 0
		reinspect := w.change()
		listed := w.list()
		if len(w.containers) > 0 { // between the list and the inspection
			exit(w.containers[w.rng.IntN(len(w.containers))], 7)
		}
		if reinspect {
			last = nil
		}
		w.calls = 0
		got, err := client.PodStatus(t.Context(), listed, last)
		must(t, err)
		fewer := w.calls
		w.calls, w.carries = 0, false
		want, err := full.PodStatus(t.Context(), listed, nil)
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, step %d: got\n%s\nwant\n%s", seed, step, showStatus(got), showStatus(want))
		}
		saved += w.calls - fewer
		last = got
	}
	return saved
}

func showStatus(st *pleg.PodStatus) (text string) {
	for _, s := range st.Sandboxes {
		text += fmt.Sprintf("  %+v\n", *s)
	}
	for _, c := range st.Containers {
		text += fmt.Sprintf("  %+v\n", *c)
	}
	return text
}

// onePod is a runtime with one pod.
type onePod struct {
	mu         sync.Mutex // between concurrent calls
	rng        *rand.Rand
	carries    bool
	made       int64
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*runtimeapi.ContainerStatus
	of         map[string]string // the sandbox of a container
	calls      int
}

// change takes a random step. It reports whether the runtime did what no list shows
// and no runtime does: it changed the address of a sandbox that stays ready. Then only
// a reinspection has the new address.
func (w *onePod) change() (reinspect bool) {
	ready := w.pick(func(s *runtimeapi.PodSandboxStatus) bool {
		return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	})
	dead := w.pick(func(s *runtimeapi.PodSandboxStatus) bool {
		return s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY
	})
	switch n := w.rng.IntN(8); {
	case ready == nil && n < 4:
		w.addSandbox()
	case ready != nil && n == 0:
		w.stopSandbox(ready)
	case ready != nil && n == 1:
		reinspect = ready.GetNetwork().GetIp() != ""
		ready.Network = w.network()
	case dead != nil && n == 2:
		w.removeSandbox(dead)
	default:
		w.changeContainer()
	}
	return reinspect
}

func (w *onePod) pick(which func(*runtimeapi.PodSandboxStatus) bool) *runtimeapi.PodSandboxStatus {
	if i := slices.IndexFunc(w.sandboxes, which); i >= 0 {
		return w.sandboxes[i]
	}
	return nil
}

func (w *onePod) network() *runtimeapi.PodSandboxNetworkStatus {
	w.made++
	return &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprint("10.0.0.", w.made)}
}

// addSandbox makes a ready sandbox, which may get its address later, or never.
func (w *onePod) addSandbox() {
	w.made++
	s := &runtimeapi.PodSandboxStatus{Id: fmt.Sprint("s", w.made), CreatedAt: w.made, Labels: map[string]string{"made": fmt.Sprint(w.made)}}
	switch w.rng.IntN(3) {
	case 0:
		s.Network = w.network()
	case 1:
		s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}}
	}
	w.sandboxes = append(w.sandboxes, s)
}

func (w *onePod) stopSandbox(s *runtimeapi.PodSandboxStatus) {
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if w.rng.IntN(2) == 0 {
		s.Network = nil
	}
	for _, c := range w.containers {
		if w.of[c.GetId()] == s.GetId() {
			exit(c, 137)
		}
	}
}

func exit(c *runtimeapi.ContainerStatus, code int32) {
	if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		c.State, c.ExitCode, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, code, fmt.Sprint("code ", code)
	}
}

func (w *onePod) removeSandbox(s *runtimeapi.PodSandboxStatus) {
	w.sandboxes = slices.DeleteFunc(w.sandboxes, func(other *runtimeapi.PodSandboxStatus) bool { return other == s })
	w.containers = slices.DeleteFunc(w.containers, func(c *runtimeapi.ContainerStatus) bool { return w.of[c.GetId()] == s.GetId() })
}

// changeContainer starts, ends or removes a container.
func (w *onePod) changeContainer() {
	n := w.rng.IntN(3)
	if n == 0 && len(w.sandboxes) > 0 {
		w.made++
		c := &runtimeapi.ContainerStatus{Id: fmt.Sprint("c", w.made), CreatedAt: w.made, State: runtimeapi.ContainerState_CONTAINER_RUNNING}
		w.containers = append(w.containers, c)
		w.of[c.GetId()] = w.sandboxes[w.rng.IntN(len(w.sandboxes))].GetId()
		return
	}
	if len(w.containers) == 0 {
		return
	}
	i := w.rng.IntN(len(w.containers))
	if n == 1 {
		exit(w.containers[i], w.rng.Int32N(256))
	} else {
		w.containers = slices.Delete(w.containers, i, i+1)
	}
}

// list returns the pod as listed, newest first.
func (w *onePod) list() *pleg.Pod {
	p := &pleg.Pod{UID: "u1", Name: "web", Namespace: "prod"}
	for _, s := range slices.Backward(w.sandboxes) {
		state := pleg.StateExited
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			state = pleg.StateRunning
		}
		p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(s.GetId()), State: state})
	}
	for _, c := range slices.Backward(w.containers) {
		state := pleg.StateRunning
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			state = pleg.StateExited
		}
		p.Containers = append(p.Containers, &pleg.Container{
			ID: pleg.ContainerID(c.GetId()), SandboxID: pleg.ContainerID(w.of[c.GetId()]), State: state,
		})
	}
	return p
}

// runtime answers as the pod is now.
func (w *onePod) runtime() *fakeRuntime {
	return &fakeRuntime{
		sandboxStatus: func(_ context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls++
			for _, s := range w.sandboxes {
				if s.GetId() == id {
					return w.carry(&runtimeapi.PodSandboxStatusResponse{Status: s}), nil
				}
			}
			return nil, status.Errorf(codes.NotFound, "no sandbox %s", id)
		},
		containerStatus: func(_ context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls++
			for _, c := range w.containers {
				if c.GetId() == id {
					return &runtimeapi.ContainerStatusResponse{Status: c}, nil
				}
			}
			return nil, status.Errorf(codes.NotFound, "no container %s", id)
		},
	}
}

// carry adds the statuses of the containers. Some are unusable: absent, empty, twice,
// or wrong and gathered before the call.
func (w *onePod) carry(answer *runtimeapi.PodSandboxStatusResponse) *runtimeapi.PodSandboxStatusResponse {
	if !w.carries {
		return answer
	}
	var carried []*runtimeapi.ContainerStatus
	for _, c := range w.containers {
		if w.of[c.GetId()] == answer.GetStatus().GetId() {
			carried = append(carried, c)
		}
	}
	answer.Timestamp = time.Now().UnixNano()
	lie := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 99}
	if len(carried) > 0 {
		lie.Id = carried[0].GetId()
	}
	switch w.rng.IntN(8) {
	case 0:
		carried = carried[:len(carried)/2]
	case 1:
		carried = append(carried, &runtimeapi.ContainerStatus{}, &runtimeapi.ContainerStatus{})
	case 2:
		carried = append(carried, lie)
	case 3:
		carried, answer.Timestamp = []*runtimeapi.ContainerStatus{lie}, answer.GetTimestamp()-int64(time.Second)
	}
	answer.ContainersStatuses = carried
	return answer
}
