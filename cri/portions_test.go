package cri_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// heavy runs pods whose annotations, or whose images' names, make the list of sandboxes or that of
// containers larger than the runtime may send, as about 70 pods with 256 KiB do with containerd.
func heavy(t *testing.T, reg *prometheus.Registry, of weight, pods, limit int) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	rt, m := simulation(t, simruntime.Options{Seed: 7, MaxMessageBytes: limit})
	for i := range pods {
		addHeavy(t, rt, fmt.Sprint("heavy-", i), of)
	}
	return rt, clientOf(t, m, cri.Options{Registerer: reg})
}

// weight is the size of a sandbox and of each of its containers.
type weight struct{ sandbox, container int }

func addHeavy(t *testing.T, rt *simruntime.Runtime, name string, of weight) {
	t.Helper()
	rt.AddPod(simruntime.PodSpec{
		Name: name, UID: pleg.PodUID(name), Namespace: "default",
		Annotations: map[string]string{"blob": strings.Repeat("x", of.sandbox)},
		Containers:  []pleg.ContainerStatus{{Name: "main", Image: "image" + strings.Repeat("x", of.container)}},
	})
}

// TestTooLargeListIsListedInPortions uses lists that are too large as a whole, and lists with a
// portion that is too large. All must show the runtime's state.
func TestTooLargeListIsListedInPortions(t *testing.T) {
	for name, tt := range map[string]struct {
		of    weight
		limit int
		// The calls that list sandboxes and containers in portions, once the whole list has failed.
		sandboxes, containers int64
	}{
		"a state fits":                    {weight{4 << 10, 0}, 36 << 10, 2, 1},
		"no state fits":                   {weight{4 << 10, 0}, 16 << 10, 14, 1},
		"the containers of a sandbox fit": {weight{0, 3 << 10}, 24 << 10, 1, 12},
		"neither list fits":               {weight{4 << 10, 4 << 10}, 36 << 10, 2, 12},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			reg := prometheus.NewPedanticRegistry()
			rt, client := heavy(t, reg, tt.of, 12, tt.limit)
			for i, p := range rt.Pods() {
				if i%2 == 0 {
					must(t, rt.StopPod(p.UID))
				}
			}
			check := func(step, largest string) { // of one size, they are in the order of their UIDs
				t.Helper()
				wantTruth(t, step, listPods(t, client), rt.Pods())
				err := client.Report().Degraded
				var pods string
				for word := range strings.FieldsSeq(fmt.Sprint(err)) {
					if name, ok := strings.CutPrefix(word, "default/heavy-"); ok {
						pods += name + " "
					}
				}
				if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, pleg.ErrListTooLarge) || !strings.Contains(err.Error(), "the largest pods are default/heavy-") || pods != largest {
					t.Errorf("%s: degraded: %v, want ResourceExhausted, that a list is too large, and the largest pods %s", step, err, largest)
				}
			}
			check("at first", "10 11 0 ")
			must(t, rt.RemovePod("heavy-3"))
			addHeavy(t, rt, "heavy-new", tt.of)
			check("a pod gone and a new one", "new 10 11 ")
			rt.Burst(3, simruntime.Restart)
			check("restarts", "1 5 7 ")
			for range 2 {
				rt.ResetStats()
				check("remembered", "1 5 7 ")
				if s, c := rt.Stats().RPCs["ListPodSandbox"].Calls, rt.Stats().RPCs["ListContainers"].Calls; s != tt.sandboxes || c != tt.containers {
					t.Errorf("%d lists of sandboxes and %d of containers, want %d and %d: the whole list is put off", s, c, tt.sandboxes, tt.containers)
				}
				time.Sleep(5 * time.Minute)
				check("the whole list is tried again", "1 5 7 ")
			}
			for i := range 11 { // the node shrinks
				_ = rt.RemovePod(pleg.PodUID(fmt.Sprint("heavy-", i))) // one is gone already
			}
			time.Sleep(5 * time.Minute)
			wantPods(t, client, 2)
			if err := client.Report().Degraded; err != nil {
				t.Errorf("once it fits again, degraded: %v", err)
			}
		})
	}
}

// TestContainersOfOneSandboxAreTooLarge uses a pod whose containers do not fit into one answer: no
// other pod misses anything. Its containers are listed by state and, where these do not fit, as far as
// they are known.
func TestContainersOfOneSandboxAreTooLarge(t *testing.T) {
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	large := func(id string, state runtimeapi.ContainerState) *runtimeapi.Container {
		c := labelled(container(id, "fat", state, 1), "u2")
		c.Annotations, c.ImageRef = map[string]string{"blob": strings.Repeat("x", 481<<10)}, strings.Repeat("x", 20<<10)
		return c
	}
	thin := func(id string) *runtimeapi.Container { return labelled(container(id, "thin", running, 1), "u1") }
	rt := &rawruntime.Runtime{
		Sandboxes:  []*runtimeapi.PodSandbox{sandbox("fat", "u2", 0, 1), sandbox("thin", "u1", 0, 1)},
		Containers: []*runtimeapi.Container{large("a", running), thin("z")},
	}
	for _, s := range rt.Sandboxes {
		s.Labels = map[string]string{"io.kubernetes.pod.uid": s.Metadata.Uid}
	}
	rt.Before = func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListContainersRequest); ok && slices.Contains([]string{"y", "z"}, list.GetFilter().GetId()) {
			return status.Error(codes.Internal, "its sandbox is small")
		}
		return nil
	}
	client := connect(t, rt, cri.Options{MaxRecvBytes: 1 << 20})
	require := func(step, want string) {
		t.Helper()
		var got []string
		for _, p := range listPods(t, client) {
			for _, c := range p.Containers {
				got = append(got, fmt.Sprintf("%s %v", c.ID, c.State))
			}
		}
		if slices.Sort(got); strings.Join(got, ", ") != want {
			t.Errorf("%s: got %q, want %q", step, got, want)
		}
	}
	require("all fits", "a running, z running")
	rt.Containers = append(rt.Containers, large("b", exited), large("c", exited), large("d", exited), thin("y"))
	require("three that have exited do not fit", "a running, y running, z running")
	if err := client.Report().Degraded; err == nil || !strings.Contains(err.Error(), "the largest pods are ns-fat/name-fat (too large alone), ns-thin/name-thin 0.0 MiB") {
		t.Errorf("degraded: %v, want the pod", err)
	}
	rt.Containers[0].State = exited
	require("one that is known exits", "a exited, y running, z running")
	other := connect(t, rt, cri.Options{MaxRecvBytes: 1 << 20}) // it knows none of them
	listPods(t, other)
	if err := other.Report().Degraded; err == nil || !strings.Contains(err.Error(), "the largest pods are ns-fat/name-fat (too large alone), ns-thin") {
		t.Errorf("degraded: %v, want the pod that does not fit first, although little of it is known", err)
	}
	rt.Containers[0] = large("e", running)
	require("it is removed, and another runs", "e running, y running, z running")
	if p, err := client.ListPod(t.Context(), "u2"); err != nil || len(p.Containers) != 1 {
		t.Errorf("a list of the pod alone: %v, %v, want what a list of all has", p, err)
	}
	rt.Containers = rt.Containers[:3]
	require("one of those that do not fit is left", "b exited, e running, z running")
	const says = "a list is too large, so pods are listed in portions: list containers: the list exceeds the 1048576 bytes of Options.MaxRecvBytes, or the runtime's own limit: rpc error: "
	const largest = "; the largest pods are ns-fat/name-fat 1.0 MiB (annotations 0.9 MiB), ns-thin/name-thin 0.0 MiB (annotations 0.0 MiB)"
	if err := client.Report().Degraded; err == nil || !strings.HasPrefix(err.Error(), says) || !strings.HasSuffix(err.Error(), largest) {
		t.Errorf("degraded: %v, want the size of the pod, which fits now", err)
	}
	rt.Containers[0].Annotations["blob"] = strings.Repeat("x", 2<<20)
	if _, err := client.ListPods(t.Context()); status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(err.Error(), "list containers in portions: the list exceeds ") {
		t.Errorf("a container that does not fit alone: %v, want an error, as its state is not known", err)
	}
	rt.Before = func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListContainersRequest); ok && list.GetFilter().GetPodSandboxId() == "fat" {
			return status.Error(codes.Internal, "broken")
		}
		return nil
	}
	if pods, err := client.ListPods(t.Context()); status.Code(err) != codes.Internal {
		t.Errorf("got %s, %v; want the error of the portion", show(pods), err)
	}
	if err := client.Report().Degraded; err == nil || !strings.HasSuffix(err.Error(), largest) {
		t.Errorf("after lists that failed, degraded: %v, want it as before", err)
	}
}

// A new connection may be to a runtime with another limit: the next list is a whole one.
func TestNewConnectionIsAskedForTheWholeList(t *testing.T) {
	rt := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}, Containers: []*runtimeapi.Container{container("c1", "s1", 1, 1)}}
	tooLarge := func(_ context.Context, request any) error { // the containers
		if list, ok := request.(interface {
			GetFilter() *runtimeapi.ContainerFilter
		}); ok && list.GetFilter() == nil {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		return nil
	}
	m := &kit.Memory{}
	rt.Before = tooLarge
	stop := rawruntime.Serve(t, rt, m.Listen())
	client := clientOf(t, m, cri.Options{})
	wantPods(t, client, 1)
	if client.Report().Degraded == nil {
		t.Error("the containers are not listed in portions")
	}
	stop()
	rt.Before = nil
	rawruntime.Serve(t, rt, m.Listen())
	for _, err := client.ListPods(t.Context()); err != nil; _, err = client.ListPods(t.Context()) {
		must(t, t.Context().Err())
	}
	wantPods(t, client, 1)
	if err := client.Report().Degraded; err != nil {
		t.Errorf("on a new connection, degraded: %v", err)
	}
}

// TestSandboxSeenElsewhereIsInPortions uses two sandboxes without a container, whose ids no
// list contains. If single-pod lists have shown them, the next list of all must contain them, or the
// pods would count as gone. Once they are gone, they are not asked for again.
func TestSandboxSeenElsewhereIsInPortions(t *testing.T) {
	bare := []pleg.PodUID{"bare", "bald"}
	listBare := func(t *testing.T, client *cri.Client) {
		for _, uid := range bare {
			if p, err := client.ListPod(t.Context(), uid); err != nil || p == nil {
				t.Fatalf("list of one pod: %v, %v", p, err)
			}
		}
	}
	failOnce := func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, pod pleg.PodUID, add func()) {
		add()
		listBare(t, client)
		rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", PodUID: pod, Code: codes.Internal, Times: 1})
		if pods, err := client.ListPods(t.Context()); pods != nil || err == nil || !strings.Contains(err.Error(), "list pod sandboxes in portions: ") || !strings.Contains(err.Error(), "injected fault") {
			t.Errorf("got %d pods, %v; want the error of the list", len(pods), err)
		}
	}
	for name, see := range map[string]func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()){
		"by a list of one pod": func(t *testing.T, _ *simruntime.Runtime, client *cri.Client, add func()) {
			add()
			listBare(t, client)
		},
		// A list without one of its portions is wrong.
		"before a list of which a portion fails": func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()) {
			failOnce(t, rt, client, "heavy-7", add)
		},
		"before a list that fails": func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()) {
			failOnce(t, rt, client, "", add)
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt, client := heavy(t, prometheus.NewRegistry(), weight{sandbox: 4 << 10}, 12, 16<<10)
			wantPods(t, client, 12)
			synctest.Wait()
			see(t, rt, client, func() {
				for _, uid := range bare {
					rt.AddPod(simruntime.PodSpec{Name: string(uid), UID: uid, Namespace: "default"})
				}
			})
			for range 3 {
				wantPods(t, client, 14)
			}
			for _, uid := range bare {
				must(t, rt.RemovePod(uid))
			}
			for range 2 {
				rt.ResetStats()
				wantPods(t, client, 12)
			}
			if n := rt.Stats().RPCs["ListPodSandbox"].Calls; n != 14 {
				t.Errorf("%d lists of sandboxes at the end, want 2 by state and one for each of 12 pods", n)
			}
		})
	}
}

// A sandbox that has become too large to be listed even alone still exists: it stays as
// it was in the previous list. The sandbox of a malformed container is not asked for: a filter without
// an id fits all.
func TestSandboxTooLargeAloneStays(t *testing.T) {
	rt := &rawruntime.Runtime{
		Sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1), sandbox("s2", "u2", 0, 1)},
		Containers: []*runtimeapi.Container{container("c1", "", 1, 1)},
	}
	var large, gone atomic.Bool
	rt.Before = func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && gone.Load() && list.GetFilter().GetId() == "s2" {
			return status.Error(codes.NotFound, "gone") // a runtime may answer so
		}
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && list.GetFilter() != nil && list.GetFilter().GetId() == "" && list.GetFilter().GetState() == nil {
			return status.Error(codes.Internal, "all are asked for again")
		}
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && large.Load() && list.GetFilter().GetId() != "s2" {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		return nil
	}
	client := connect(t, rt, cri.Options{})
	before := show(listPods(t, client))
	large.Store(true)
	wantList(t, client, before)
	wantList(t, client, before)
	gone.Store(true)
	wantList(t, client, strings.SplitAfter(before, "\n")[0])
}

// If only one state is too large, its sandboxes are asked for by their ids, and those of the other state are not.
func TestOneStateIsTooLarge(t *testing.T) {
	rt := &rawruntime.Runtime{}
	for n := range 10 {
		id := fmt.Sprint(n)
		rt.Sandboxes = append(rt.Sandboxes, sandbox("s"+id, "u"+id, runtimeapi.PodSandboxState(n%2), 1))
	}
	client := connect(t, rt, cri.Options{})
	before := show(listPods(t, client))
	rt.Before = func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && list.GetFilter().GetId() == "" &&
			(list.GetFilter() == nil || list.GetFilter().GetState().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY) {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		return nil
	}
	wantList(t, client, before)
	if n := rt.One.Load(); n != 6 {
		t.Errorf("%d lists of a part, want one of the state that fits and one for each of 5 sandboxes", n)
	}
}

// TestSandboxInTwoPortionsCountsOnce makes a sandbox stop between the first portion and the second: it
// is in both, since the ready sandboxes come first. In a whole list it may not be twice.
func TestSandboxInTwoPortionsCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		rt := &rawruntime.Runtime{}
		state := runtimeapi.PodSandboxState_SANDBOX_READY
		rt.Before = func(_ context.Context, request any) error {
			list, ok := request.(*runtimeapi.ListPodSandboxRequest)
			switch {
			case ok && list.GetFilter() == nil:
				return status.Error(codes.ResourceExhausted, "too large")
			case ok:
				rt.Sandboxes = []*runtimeapi.PodSandbox{sandbox("s1", "u1", state, 1)}
				state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			}
			return nil
		}
		client := connect(t, rt, cri.Options{Registerer: reg})
		pods, err := client.ListPods(t.Context())
		if err != nil || len(pods) != 1 || len(pods[0].Sandboxes) != 1 {
			t.Errorf("got %s, %v; want one sandbox", show(pods), err)
		}
		kit.RequireMetric(t, reg, 0, "pleg_malformed_items_total")
		time.Sleep(5 * time.Minute)
		rt.Before = nil
		rt.Sandboxes = append(rt.Sandboxes, rt.Sandboxes[0])
		wantPods(t, client, 1)
		kit.RequireMetric(t, reg, 1, "pleg_malformed_items_total")
	})
}
