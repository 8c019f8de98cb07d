package cri_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
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

// What one inspection asks for, of a pod with a sandbox and two containers, which run. last makes
// the last status from the status of the inspection before.
func TestPodStatusCalls(t *testing.T) {
	same := func(*pleg.PodStatus) {}
	exit := func(st *pleg.PodStatus) { st.Containers[0].State = pleg.StateExited }
	kill := func(before time.Duration) func(*pleg.PodStatus) {
		return func(st *pleg.PodStatus) {
			st.ObservedAt = time.Now()
			c := st.Containers[0]
			c.State, c.ExitCode, c.Reason, c.FinishedAt = pleg.StateExited, 137, "Error", st.ObservedAt.Add(-before)
		}
	}
	for _, test := range []struct {
		name                  string
		carries               bool
		last                  func(*pleg.PodStatus)
		exited                bool // the first container is listed as exited
		stopped               bool // the sandbox is listed as not ready
		sandboxes, containers int64
	}{
		{name: "nothing is known", sandboxes: 1, containers: 2},
		{name: "the sandbox is as ready as before", last: same, containers: 2},
		{name: "it needs no address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].IPs, st.Sandboxes[0].HostNetwork = nil, true }, containers: 2},
		{name: "it had no address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].IPs = nil }, sandboxes: 1, containers: 2},
		{name: "it was dead", last: func(st *pleg.PodStatus) { st.Sandboxes[0].Ready = false }, sandboxes: 1, containers: 2},
		{name: "it stopped since", last: same, stopped: true, sandboxes: 1, containers: 2},
		{name: "it stopped before", last: func(st *pleg.PodStatus) { st.Sandboxes[0].Ready, st.Sandboxes[0].IPs = false, nil }, stopped: true, containers: 2},
		{name: "another sandbox had the address", last: func(st *pleg.PodStatus) { st.Sandboxes[0].ID = "s0" }, sandboxes: 1, containers: 2},
		{name: "a container had exited", last: exit, exited: true, containers: 1},
		{name: "a container has exited since", last: same, exited: true, containers: 2},
		{name: "a container had exited and is listed as running", last: exit, containers: 2},
		{name: "a container had been killed", last: kill(2 * time.Second), exited: true, containers: 1},
		{name: "a container had been killed just before", last: kill(100 * time.Millisecond), exited: true, containers: 2},
		{name: "carried, nothing is known", carries: true, sandboxes: 1},
		{name: "carried, the sandbox is as ready as before", carries: true, last: same, sandboxes: 1},
		{name: "carried, one container is left", carries: true, last: exit, exited: true, sandboxes: 1},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			rt, m := simulation(t, simruntime.Options{StatusesInSandbox: test.carries})
			populate(t, rt, 1, 2)
			client := clientOf(t, m, cri.Options{})
			listed := listPods(t, client)[0]
			last, err := client.PodStatus(t.Context(), listed, nil) // the client learns what is carried
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
			if test.exited {
				first.State = pleg.StateExited
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
			if kept := last.Container(first.ID); kept != nil && (st.Container(first.ID) == kept) != (test.containers == 1 || test.carries && test.exited) {
				t.Errorf("the last status of the first container is used: %t", st.Container(first.ID) == kept)
			}
			if len(st.Containers) != 2 || len(st.Sandboxes) != 1 {
				t.Errorf("got %d containers and %d sandboxes, want 2 and 1", len(st.Containers), len(st.Sandboxes))
			}
		})
	}
}

// The address of a sandbox that stays ready is only reused on the connection from which it came,
// and only of a runtime that is known to keep it.
func TestAddressesAreReused(t *testing.T) {
	for _, tt := range []struct {
		runtime      string
		before, then int32 // the sandboxes asked for by two inspections before a restart and two after it
	}{{"containerd", 1, 2}, {"cri-o", 1, 2}, {"docker", 2, 4}} {
		t.Run(tt.runtime, func(t *testing.T) {
			var asked atomic.Int32
			fake := &rawruntime.Runtime{
				Name:            tt.runtime,
				Sandboxes:       []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)},
				SandboxStatuses: map[string]*runtimeapi.PodSandboxStatusResponse{"s1": sandboxStatus("s1", true, 1, "10.0.0.1")},
				Before: func(_ context.Context, request any) error {
					if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
						asked.Add(1)
					}
					return nil
				},
			}
			m := &kit.Memory{}
			stop := rawruntime.Serve(t, fake, m.Listen())
			client := clientOf(t, m, cri.Options{})
			var last *pleg.PodStatus
			inspect := func(want string) {
				t.Helper()
				listed := time.Now()
				st, err := client.PodStatus(t.Context(), listPods(t, client)[0], last)
				must(t, err)
				st.ObservedAt = listed
				if got := fmt.Sprint(st.IPs); got != want {
					t.Errorf("the addresses are %s, want %s", got, want)
				}
				last = st
			}
			inspect("[10.0.0.1]")
			inspect("[10.0.0.1]")
			if n := asked.Load(); n != tt.before {
				t.Errorf("asked %d times for the sandbox, want %d", n, tt.before)
			}
			stop()
			fake.SandboxStatuses["s1"] = sandboxStatus("s1", true, 1, "10.0.0.2") // the restart changed it
			rawruntime.Serve(t, fake, m.Listen())
			for _, err := client.ListPods(t.Context()); err != nil; _, err = client.ListPods(t.Context()) {
				if t.Context().Err() != nil {
					t.Fatal(err)
				}
			}
			inspect("[10.0.0.2]")
			inspect("[10.0.0.2]")
			if n := asked.Load(); n != tt.then {
				t.Errorf("asked %d times for the sandbox, want %d", n, tt.then)
			}
		})
	}
}

// On random histories, an inspection that uses the last status of the pod returns the same as an
// inspection that asks for everything. The runtime carries statuses never, always, or now and then,
// and some of what it carries is unusable.
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
			populate(t, rt, 3, 3)
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
// of no known state, gathered before the call or without a time. Six ways do.
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
	}
	answer.ContainersStatuses = carried
}
