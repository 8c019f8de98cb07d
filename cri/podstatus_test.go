package cri_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// The calls of one inspection of a pod with a sandbox and two running containers. last makes the
// last status from the status of the previous inspection.
func TestPodStatusCalls(t *testing.T) {
	same := func(*pleg.PodStatus) {}
	state := func(of pleg.State) func(*pleg.PodStatus) {
		return func(st *pleg.PodStatus) { st.Containers[0].State = of }
	}
	listed := func(as pleg.State) func(*pleg.Pod) { return func(p *pleg.Pod) { p.Containers[0].State = as } }
	exit := state(pleg.StateExited)
	end := func(before time.Duration, code int32, reason string) func(*pleg.PodStatus) {
		return func(st *pleg.PodStatus) {
			st.ObservedAt = time.Now().Add(-time.Minute) // what counts is the time then
			c := st.Containers[0]
			c.State, c.ExitCode, c.Reason, c.FinishedAt = pleg.StateExited, code, reason, st.ObservedAt.Add(-before)
		}
	}
	for _, test := range []struct {
		name                  string
		carries               bool
		last                  func(*pleg.PodStatus)
		list                  func(*pleg.Pod) // how the first container is listed, if not as running
		stopped               bool            // the sandbox is listed as not ready
		sandboxes, containers int64
	}{
		{name: "nothing is known", sandboxes: 1, containers: 2},
		{name: "all is listed as before", last: same},
		{name: "the sandbox needs no address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].IPs, st.Sandboxes[0].HostNetwork = nil, true }},
		{name: "the sandbox had no address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].IPs = nil }, sandboxes: 1},
		{name: "the sandbox was dead", last: func(st *pleg.PodStatus) { st.Sandboxes[0].Ready = false }, sandboxes: 1},
		{name: "the sandbox stopped since", last: same, stopped: true, sandboxes: 1},
		{name: "the sandbox stopped before", last: func(st *pleg.PodStatus) { st.Sandboxes[0].Ready, st.Sandboxes[0].IPs = false, nil }, stopped: true},
		{name: "the sandbox stopped before and its state is not known now", last: func(st *pleg.PodStatus) { st.Sandboxes[0].Ready, st.Sandboxes[0].IPs = false, nil }, list: func(p *pleg.Pod) {
			p.Sandboxes[0].State = pleg.StateUnknown
		}, sandboxes: 1},
		{name: "another sandbox had the address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].ID = "s0" }, sandboxes: 1},
		{name: "a container is new", last: func(st *pleg.PodStatus) { st.Containers = st.Containers[1:] }, containers: 1},
		{name: "a container had exited", last: exit, list: listed(pleg.StateExited)},
		{name: "a container has exited since", last: same, list: listed(pleg.StateExited), containers: 1},
		{name: "a container had exited and is listed as running", last: exit, containers: 1},
		{name: "a container had been killed", last: end(time.Second, 137, "Error"), list: listed(pleg.StateExited)},
		{name: "a container had been killed just before", last: end(time.Second-1, 137, "Error"), list: listed(pleg.StateExited), containers: 1},
		{name: "a container had been killed just before, for its memory", last: end(time.Second-1, 137, "OOMKilled"), list: listed(pleg.StateExited)},
		{name: "a container had failed just before", last: end(time.Second-1, 1, "Error"), list: listed(pleg.StateExited)},
		{name: "a container was created", last: state(pleg.StateCreated), containers: 1},
		{name: "a container was and is created", last: state(pleg.StateCreated), list: listed(pleg.StateCreated)},
		{name: "a container is listed as created and runs", last: same, list: listed(pleg.StateCreated), containers: 1},
		{name: "a container was unknown", last: state(pleg.StateUnknown), containers: 1},
		{name: "a container was and is unknown", last: state(pleg.StateUnknown), list: listed(pleg.StateUnknown), containers: 1},
		{name: "carried, nothing is known", carries: true, sandboxes: 1},
		{name: "carried, all is listed as before", carries: true, last: same},
		{name: "carried, a container has exited since", carries: true, last: same, list: listed(pleg.StateExited), sandboxes: 1},
		{name: "carried, a container has exited since beside a dead sandbox", carries: true, last: func(st *pleg.PodStatus) {
			st.Sandboxes = append(st.Sandboxes, &pleg.SandboxStatus{ID: "dead"})
		}, list: func(p *pleg.Pod) {
			listed(pleg.StateExited)(p)
			p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: "dead", State: pleg.StateExited})
		}, sandboxes: 1},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			rt, m := simulation(t, simruntime.Options{StatusesInSandbox: test.carries})
			rt.Populate(simruntime.Population{Pods: 1, Containers: 2})
			client := clientOf(t, m, cri.Options{})
			listed := listPods(t, client)[0]
			last, err := client.PodStatus(t.Context(), listed, nil) // the client learns which statuses are carried
			must(t, err)
			if n := rt.Stats().RPCs["ContainerStatus"].Calls; test.carries && n != 0 {
				t.Errorf("the first inspection asked for %d containers, want none", n)
			}
			if test.last == nil {
				last = nil
			} else {
				test.last(last)
			}
			first := listed.Containers[0]
			if test.list != nil {
				test.list(listed)
			}
			if test.stopped {
				listed.Sandboxes[0].State = pleg.StateExited
			}
			rt.ResetStats()
			st, err := client.PodStatus(t.Context(), listed, last)
			must(t, err)
			asked := rt.Stats().RPCs
			if s, c := asked["PodSandboxStatus"].Calls, asked["ContainerStatus"].Calls; s != test.sandboxes || c != test.containers {
				t.Errorf("asked for %d sandboxes and %d containers, want %d and %d", s, c, test.sandboxes, test.containers)
			}
			if kept := last.Container(first.ID); kept != nil && (st.Container(first.ID) == kept) != (test.containers == 0 && (!test.carries || test.sandboxes == 0)) {
				t.Errorf("the last status of the first container is used: %t", st.Container(first.ID) == kept)
			}
			if len(st.Containers) != 2 || len(st.Sandboxes) != len(listed.Sandboxes) {
				t.Errorf("got %d containers and %d sandboxes, want 2 and %d", len(st.Containers), len(st.Sandboxes), len(listed.Sandboxes))
			}
			rt.ResetStats()
			_, err = clientOf(t, m, cri.Options{}).PodStatus(t.Context(), listed, last)
			must(t, err)
			if n := rt.Stats().RPCs["PodSandboxStatus"].Calls; n != int64(len(listed.Sandboxes)) {
				t.Errorf("a client that had no connection asked for %d sandboxes, want %d", n, len(listed.Sandboxes))
			}
		})
	}
}

// Facts from one connection are asked for again on the next: the addresses of a sandbox, the status of
// a container that is listed as before, and whether sandbox statuses carry it.
func TestNewConnectionIsAskedForEverything(t *testing.T) {
	var sandboxes, containers atomic.Int32 // asked for
	answer := func(ip string, carried ...*runtimeapi.ContainerStatus) *runtimeapi.PodSandboxStatusResponse {
		a := sandboxStatus("s1", true, 1, ip)
		if a.ContainersStatuses = carried; carried != nil {
			a.Timestamp = time.Now().Add(time.Hour).UnixNano()
		}
		return a
	}
	runs := &runtimeapi.ContainerStatus{Id: "c1", State: 1, ImageRef: "a"}
	fake := &rawruntime.Runtime{
		Sandboxes:         []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)},
		Containers:        []*runtimeapi.Container{container("c1", "s1", 1, 1)},
		SandboxStatuses:   map[string]*runtimeapi.PodSandboxStatusResponse{"s1": answer("10.0.0.1")},
		ContainerStatuses: map[string]*runtimeapi.ContainerStatusResponse{"c1": {Status: runs}},
		Before: func(_ context.Context, request any) error {
			switch request.(type) {
			case *runtimeapi.PodSandboxStatusRequest:
				sandboxes.Add(1)
			case *runtimeapi.ContainerStatusRequest:
				containers.Add(1)
			}
			return nil
		},
	}
	m := &kit.Memory{}
	stop := rawruntime.Serve(t, fake, m.Listen())
	client := clientOf(t, m, cri.Options{})
	var last *pleg.PodStatus
	inspect := func(want string, ofSandboxes, ofContainers int32) {
		t.Helper()
		began := time.Now()
		st, err := client.PodStatus(t.Context(), listPods(t, client)[0], last)
		must(t, err)
		st.ObservedAt = began
		if got := fmt.Sprintf("%v %s", st.IPs, st.Containers[0].ImageRef); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if s, c := sandboxes.Swap(0), containers.Swap(0); s != ofSandboxes || c != ofContainers {
			t.Errorf("asked for %d sandboxes and %d containers, want %d and %d", s, c, ofSandboxes, ofContainers)
		}
		last = st
	}
	restart := func(sandbox *runtimeapi.PodSandboxStatusResponse) {
		stop()
		fake.SandboxStatuses["s1"] = sandbox
		stop = rawruntime.Serve(t, fake, m.Listen())
		for _, err := client.ListPods(t.Context()); err != nil; _, err = client.ListPods(t.Context()) {
			must(t, t.Context().Err())
		}
	}
	inspect("[10.0.0.1] a", 1, 1)
	inspect("[10.0.0.1] a", 0, 0)
	restart(answer("10.0.0.2", &runtimeapi.ContainerStatus{Id: "c1", State: 1, ImageRef: "b"}))
	inspect("[10.0.0.2] b", 1, 0)
	inspect("[10.0.0.2] b", 0, 0)
	restart(answer("10.0.0.3"))
	inspect("[10.0.0.3] a", 1, 1)
	fake.SandboxStatuses["s1"] = answer("10.0.0.3", &runtimeapi.ContainerStatus{Id: "c1", State: 1, ImageRef: "c"})
	for _, asked := range []int32{1, 0} { // the last answer shows whether to ask
		last = nil
		inspect("[10.0.0.3] c", 1, asked)
	}
}

// On random histories, an inspection that uses the last status of the pod returns the same as an
// inspection that asks for everything, except that a container that has ended since is in the state
// that the list shows. The runtime carries statuses never, always, or sometimes, and some carried
// statuses are unusable.
func TestPodStatusEqualsAllCalls(t *testing.T) {
	for carries, name := range []string{"never", "always", "sometimes"} {
		kit.Bubble(t, name, func(t *testing.T) {
			if saved := compareWithAllCalls(t, carries); saved <= 0 {
				t.Errorf("%d calls were saved", saved)
			}
		})
	}
}

// compareWithAllCalls returns how many calls a history saved.
func compareWithAllCalls(t *testing.T, carries int) (saved int64) {
	t.Helper()
	rt, m := simulation(t, simruntime.Options{Seed: 7, StatusesInSandbox: true})
	rng := rand.New(rand.NewPCG(1, uint64(carries)))
	var way int // how to spoil
	var carrying bool
	client := clientOf(t, m, distorted(func(answer *runtimeapi.PodSandboxStatusResponse) {
		if carrying {
			spoil(answer, way)
		} else {
			carryNothing(answer)
		}
	}))
	full := clientOf(t, m, distorted(carryNothing))
	last := make(map[pleg.PodUID]*pleg.PodStatus)
	for step := range 60 {
		carrying = carries == 1 || carries == 2 && rng.IntN(2) == 0
		if step%10 == 0 {
			rt.Populate(simruntime.Population{Pods: 3, Containers: 3})
		}
		changes := []simruntime.Change{simruntime.Restart, simruntime.Exit, simruntime.Replace, simruntime.Remove}
		rt.Burst(1+rng.IntN(2), changes[rng.IntN(len(changes))])
		if pods := rt.Pods(); len(pods) > 0 && step%5 == 0 {
			must(t, rt.StopPod(pods[rng.IntN(len(pods))].UID))
		}
		listed := listPods(t, client)
		rt.Burst(1, simruntime.Exit) // between the list and the inspection
		for _, p := range listed {
			way = rng.IntN(10)
			before := rt.Stats().Calls()
			got, err := client.PodStatus(t.Context(), p, last[p.UID])
			must(t, err)
			fewer := rt.Stats().Calls() - before
			want, err := full.PodStatus(t.Context(), p, nil)
			must(t, err)
			for i, c := range p.Containers {
				if kept := last[p.UID].Container(c.ID); kept != nil && kept == got.Container(c.ID) && kept.State == c.State {
					want.Containers[i] = kept
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d: got\n%s\nwant\n%s", step, showStatus(got), showStatus(want))
			}
			saved += rt.Stats().Calls() - before - 2*fewer
			last[p.UID] = got
		}
		time.Sleep(time.Second)
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

// distorted returns the options of a client for which some sandboxes get their address late,
// and some need none. carry changes which statuses of containers an answer carries.
func distorted(carry func(*runtimeapi.PodSandboxStatusResponse)) cri.Options {
	return cri.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, conn, opts...)
			answer, ok := reply.(*runtimeapi.PodSandboxStatusResponse)
			if err != nil || !ok {
				return err
			}
			st := answer.GetStatus()
			switch id := st.GetId(); {
			case id[0]%2 == 0 && time.Since(time.Unix(0, st.GetCreatedAt())) < 5*time.Second:
				st.Network = nil
			case id[0]%4 == 1:
				st.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
					Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
				}}
			}
			carry(answer)
			return nil
		})}}
}

func carryNothing(answer *runtimeapi.PodSandboxStatusResponse) {
	answer.ContainersStatuses, answer.Timestamp = nil, 0
}

// spoil makes some of the carried statuses unusable: absent, empty, twice, or wrong and
// of no known state, gathered before the call or without a time. Seven ways do.
func spoil(answer *runtimeapi.PodSandboxStatusResponse, way int) {
	carried := answer.GetContainersStatuses()
	lie := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 99}
	if len(carried) > 0 {
		lie.Id = carried[0].GetId()
	}
	switch way {
	case 0:
		carried = carried[:len(carried)/2]
	case 1:
		carried = append(carried, &runtimeapi.ContainerStatus{}, &runtimeapi.ContainerStatus{})
	case 2:
		carried = append(carried, lie)
	case 3:
		carried, answer.Timestamp = []*runtimeapi.ContainerStatus{lie}, answer.GetTimestamp()-int64(time.Second)
	case 4:
		carried, answer.Timestamp = []*runtimeapi.ContainerStatus{lie}, 0
	case 5:
		lie.State = 99
		carried = []*runtimeapi.ContainerStatus{lie}
	case 6:
		carried = slices.Insert(carried, 0, lie)
	}
	answer.ContainersStatuses = carried
}
