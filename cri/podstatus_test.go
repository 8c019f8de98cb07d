package cri_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
		{name: "a container has exited since", last: ready("10.0.0.1"), exited: true, want: both},
		{name: "a container had exited and is listed as running", last: exited, want: both},
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
			if kept := test.last.Container("c1"); kept != nil && (st.Container("c1") != kept) != slices.Contains(test.want, "c1") {
				t.Errorf("the last status of c1 is used: %t", st.Container("c1") == kept)
			}
			if len(st.Containers) != 2 || len(st.Sandboxes) != 1 {
				t.Errorf("got %d containers and %d sandboxes, want 2 and 1", len(st.Containers), len(st.Sandboxes))
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
			synctest.Test(t, func(t *testing.T) {
				if saved := compareWithAllCalls(t, carries); saved <= 0 {
					t.Errorf("%d calls were saved", saved)
				}
			})
		})
	}
}

// compareWithAllCalls returns how many calls a history saved.
func compareWithAllCalls(t *testing.T, carries int) (saved int64) {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{Seed: 7, StatusesInSandbox: true})
	must(t, err)
	o := &outlet{}
	listener := o.listen()
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	w := &distorted{rng: rand.New(rand.NewPCG(1, uint64(carries)))}
	client, full := o.client(t, w.options(func() bool { return w.carries })), o.client(t, w.options(func() bool { return false }))
	last := make(map[pleg.PodUID]*pleg.PodStatus)
	for step := range 60 {
		w.carries = carries == 1 || carries == 2 && w.rng.IntN(2) == 0
		if step%10 == 0 {
			populate(t, rt, 5, 3)
		}
		changes := []simruntime.Change{simruntime.Restart, simruntime.Exit, simruntime.Replace, simruntime.Remove}
		rt.Burst(1+w.rng.IntN(2), changes[w.rng.IntN(len(changes))])
		if pods := rt.Pods(); len(pods) > 0 && step%5 == 0 {
			must(t, rt.StopSandbox(pods[w.rng.IntN(len(pods))].Sandboxes[0].ID))
		}
		listed := listPods(t, client)
		rt.Burst(1, simruntime.Exit) // between the list and the inspection
		for _, p := range listed {
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

// distorted changes what a runtime answers of sandboxes.
type distorted struct {
	mu      sync.Mutex // between concurrent calls
	rng     *rand.Rand
	carries bool
}

// options are those of a client whose sandbox statuses carry those of the containers, or do
// not. Some sandboxes get their address late, and some need none.
func (w *distorted) options(carries func() bool) cri.Options {
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
			if !carries() {
				answer.ContainersStatuses, answer.Timestamp = nil, 0
				return nil
			}
			w.spoil(answer)
			return nil
		})}}
}

// spoil makes some of the carried statuses unusable: absent, empty, twice, or wrong and
// of no known state, gathered before the call or without a time.
func (w *distorted) spoil(answer *runtimeapi.PodSandboxStatusResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	carried := answer.GetContainersStatuses()
	lie := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 99}
	if len(carried) > 0 {
		lie.Id = carried[0].GetId()
	}
	switch w.rng.IntN(10) {
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
