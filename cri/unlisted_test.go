package cri_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

const unlistedPod = "u1 ns-s1/name-s1 map[app:web of:s1] c1<s1 name-c1#2 running@2\n"

// unlistedSandbox is a runtime with the container c1 in the sandbox s1. It does not list the
// sandbox. asked counts the calls for it.
func unlistedSandbox(asked *atomic.Int64, fail func(context.Context) error) *rawruntime.Runtime {
	s := sandbox("s1", "u1", 0, 1)
	return &rawruntime.Runtime{
		Containers:      []*runtimeapi.Container{container("c1", "s1", 1, 2)},
		SandboxStatuses: map[string]*runtimeapi.PodSandboxStatusResponse{"s1": {Status: &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: s.Metadata, Labels: s.Labels}}},
		Before: func(ctx context.Context, request any) error {
			if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
				asked.Add(1)
				return fail(ctx)
			}
			return nil
		},
	}
}

func noFault(context.Context) error { return nil }

// A sandbox that was never listed is asked for once, also by the list of one pod, which finds the
// container by the kubelet's label.
func TestListPodAsksForItsSandbox(t *testing.T) {
	var asked atomic.Int64
	fake := unlistedSandbox(&asked, noFault)
	container := labelled(fake.Containers[0], "u1")
	fake.Containers = nil
	client := connect(t, fake, cri.Options{})
	wantPods(t, client, 0)
	fake.Containers = []*runtimeapi.Container{container}
	for range 2 {
		if got, err := client.ListPod(t.Context(), "u1"); err != nil || show(present(got)) != unlistedPod {
			t.Errorf("got %s, %v; want %s", show(present(got)), err, unlistedPod)
		}
	}
	if asked, n := asked.Load(), fake.Whole.Load(); asked != 1 || n != 1 {
		t.Errorf("asked %d times and listed all %d times, want 1 and 1", asked, n)
	}
}

// The labels of a pod are those of a sandbox that is known, also if its newest container is in another. Without
// metadata, the kubelet's labels name the pod.
func TestLabelsOfAKnownSandbox(t *testing.T) {
	bare := unlistedSandbox(new(atomic.Int64), noFault)
	st := bare.SandboxStatuses["s1"].Status
	st.Metadata, st.Labels = nil, labelled(&runtimeapi.Container{}, "u1").Labels
	wantList(t, connect(t, bare, cri.Options{}), fmt.Sprintf("u1 space/labelled %v c1<s1 name-c1#2 running@2\n", st.Labels))
	fake := unlistedSandbox(new(atomic.Int64), noFault)
	c2 := labelled(container("c2", "s2", 1, 3), "u1")
	c2.Labels["io.kubernetes.pod.name"], c2.Labels["io.kubernetes.pod.namespace"] = "name-s1", "ns-s1"
	fake.Containers = append(fake.Containers, c2)
	wantList(t, connect(t, fake, cri.Options{}), "u1 ns-s1/name-s1 map[app:web of:s1] c2<s2 name-c2#3 running@3 c1<s1 name-c1#2 running@2\n")
}

// A sandbox that was in an earlier list is not asked for, however long ago, and neither is one of a pod
// with another sandbox. Without its containers, a sandbox is forgotten.
func TestSandboxThatWasListedIsNotAskedFor(t *testing.T) {
	var asked atomic.Int64
	fake := unlistedSandbox(&asked, noFault)
	fake.Sandboxes = []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}
	for _, other := range []string{"2", "3", "4"} { // found among others
		fake.Sandboxes = append(fake.Sandboxes, sandbox("s"+other, "u"+other, 0, 1))
	}
	client := connect(t, fake, cri.Options{})
	wantPods(t, client, 4)
	fake.Sandboxes = nil
	wantList(t, client, unlistedPod)
	fake.Containers = append(fake.Containers, container("c2", "s1", 1, 3))
	wantList(t, client, "u1 ns-s1/name-s1 map[app:web of:s1] c2<s1 name-c2#3 running@3 c1<s1 name-c1#2 running@2\n")
	other := unlistedSandbox(&asked, noFault)
	labelled(other.Containers[0], "u1")
	other.Sandboxes = []*runtimeapi.PodSandbox{ofPod(sandbox("s2", "u1", 0, 1), "space", "labelled")}
	wantPods(t, connect(t, other, cri.Options{}), 1)
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times, want not at all", n)
	}
	containers := fake.Containers[:1]
	fake.Containers = nil
	wantPods(t, client, 0)
	fake.Containers = containers
	wantList(t, client, unlistedPod)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for a sandbox whose containers were gone, want 1", n)
	}
}

// If the runtime does not return the sandbox, or not as one of a pod, the pod's name is that in the
// kubelet's labels. The sandbox of two containers is asked for once, and again after a minute: then the pod
// may get its labels. The sandbox without an id is not asked for.
func TestSandboxThatIsNotTold(t *testing.T) {
	for name, tc := range map[string]struct {
		fail  func(context.Context) error
		told  func(*runtimeapi.PodSandboxStatus) // changes the answer, if there is one
		waits time.Duration
		asked int64 // in 62 lists, one a second
	}{
		"it is gone": {func(context.Context) error { return status.Error(codes.NotFound, "gone") }, nil, 0, 2},
		"an error":   {func(context.Context) error { return status.Error(codes.Internal, "broken") }, nil, 0, 2},
		"it hangs":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil, time.Second, 2},
		"another's":  {noFault, func(st *runtimeapi.PodSandboxStatus) { st.Id = "s2" }, 0, 2},
		"of no pod":  {noFault, func(st *runtimeapi.PodSandboxStatus) { st.Metadata.Uid = "" }, 0, 2},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var asked atomic.Int64
			fake := unlistedSandbox(&asked, tc.fail)
			labelled(fake.Containers[0], "u1")
			fake.Containers = append(fake.Containers, labelled(container("c2", "s1", 1, 1), "u1"), labelled(container("c3", "", 1, 0), "u1"))
			const containers = "c1<s1 name-c1#2 running@2 c2<s1 name-c2#1 running@1 c3< name-c3#0 running@0\n"
			if tc.told != nil {
				tc.told(fake.SandboxStatuses["s1"].Status)
			}
			var log kit.Log
			client := connect(t, fake, cri.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			for n := range 62 {
				began := time.Now()
				wantList(t, client, "u1 space/labelled map[] "+containers)
				if took := time.Since(began); n == 0 && took != tc.waits || took > tc.waits {
					t.Errorf("list %d took %v, want %v", n, took, tc.waits)
				}
				time.Sleep(time.Second)
			}
			if n := asked.Load(); n != tc.asked {
				t.Errorf("asked %d times, want %d", n, tc.asked)
			}
			log.RequireLines(t, int(tc.asked), `level=DEBUG msg="sandbox of a container not known" podSandboxID=s1 err=`)
			if name == "an error" {
				log.RequireLines(t, int(tc.asked), `err="rpc error: code = Internal desc = broken"`+"\n")
			}
			st := fake.SandboxStatuses["s1"].Status // at last, the runtime returns it
			fake.Before, st.Id, st.Metadata = nil, "s1", &runtimeapi.PodSandboxMetadata{Name: "labelled", Namespace: "space", Uid: "u1"}
			time.Sleep(time.Minute)
			wantList(t, client, "u1 space/labelled map[app:web of:s1] "+containers)
		})
	}
}

// However many sandboxes are missing, the runtime is asked for two at once, and a list waits for a second in all.
func TestUnlistedSandboxesAreAskedForInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &rawruntime.Runtime{Before: func(_ context.Context, request any) error {
			if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}}
		for n := range 6 {
			id := fmt.Sprint("c", n)
			fake.Containers = append(fake.Containers, labelled(container(id, "of-"+id, 1, 1), id))
		}
		began, client := time.Now(), connect(t, fake, cri.Options{})
		calls := make(chan []pleg.Call, 1)
		time.AfterFunc(time.Millisecond, func() { calls <- client.Report().Calls })
		wantPods(t, client, 6)
		if got, want := <-calls, []pleg.Call{{Method: "PodSandboxStatus", ID: "of-c0", Started: began}, {Method: "PodSandboxStatus", ID: "of-c1", Started: began}}; !slices.Equal(got, want) {
			t.Errorf("the calls at first are %+v, want %+v", got, want)
		}
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("the list took %v, want 300ms for 6 sandboxes", took)
		}
		fake.Before = func(ctx context.Context, request any) error {
			if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		began = time.Now()
		wantPods(t, connect(t, fake, cri.Options{}), 6)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the list took %v, want 1s if no call returns", took)
		}
	})
}

// Pods that share a UID keep their names, in whatever order they come and go. The shared UID is
// counted in each list and logged once.
func TestPodsThatShareAUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := sandbox("s1", "u1", 0, 1), sandbox("s2", "u1", 0, 2), sandbox("s3", "u1", 0, 3)
		c2 := container("c2", "s2", 1, 4)
		fake := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{second, first}, Containers: []*runtimeapi.Container{c2}}
		registry := prometheus.NewPedanticRegistry()
		var log kit.Log
		client := connect(t, fake, cri.Options{Registerer: registry, Logger: log.Logger()})
		const (
			plain  = "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1]\n"
			other  = "u1@ns-s2.name-s2 ns-s2/name-s2 map[app:web of:s2] [s2< name-s2#2 running@2] c2<s2 name-c2#4 running@4\n"
			newest = "u1 ns-s3/name-s3 map[app:web of:s3] [s3< name-s3#3 running@3]\n"
		)
		wantList(t, client, plain+other)
		wantList(t, client, plain+other)
		kit.RequireMetric(t, registry, 2, "pleg_malformed_items_total")
		synctest.Wait() // for the log
		log.RequireLines(t, 1, "reason=shared_pod_uid")
		fake.Sandboxes = fake.Sandboxes[:1] // the first is gone
		wantList(t, client, other)
		fake.Sandboxes = append(fake.Sandboxes, third)
		wantList(t, client, newest+other)
		fake.Sandboxes = fake.Sandboxes[1:] // the container of the second is left
		wantList(t, client, newest+"u1@ns-s2.name-s2 ns-s2/name-s2 map[app:web of:s2] c2<s2 name-c2#4 running@4\n")
		again := sandbox("s4", "u1", 0, 5) // the second gets a new sandbox, and is one pod with its old container
		again.Metadata.Name, again.Metadata.Namespace = second.GetMetadata().GetName(), second.GetMetadata().GetNamespace()
		fake.Sandboxes = append(fake.Sandboxes, again)
		other4 := "u1@ns-s2.name-s2 ns-s2/name-s2 map[app:web of:s4] [s4< name-s2#5 running@5] c2<s2 name-c2#4 running@4\n"
		wantList(t, client, newest+other4)
		fake.Sandboxes = append(fake.Sandboxes, ofPod(sandbox("s0", "u1", 0, 1), "", "")) // without a name it is the pod's with the UID
		wantList(t, client, strings.TrimSuffix(newest, "\n")+" [s0< #1 running@1]\n"+other4)
	})
}

// Once a list lacks the first pod, a new pod in this list takes the UID over. It keeps the UID beside a later
// pod.
func TestSharedUIDIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := make([]*runtimeapi.PodSandbox, 4)
		for n := range pods {
			pods[n] = sandbox(fmt.Sprint("s", n), "u1", 0, int64(n))
		}
		fake, registry := &rawruntime.Runtime{}, prometheus.NewPedanticRegistry()
		client := connect(t, fake, cri.Options{Registerer: registry})
		counted := 0
		for n, tc := range []struct{ listed, want string }{
			{"01", "u1=name-s0 u1@ns-s1.name-s1=name-s1"},
			{"12", "u1=name-s2 u1@ns-s1.name-s1=name-s1"},
			{"123", "u1=name-s2 u1@ns-s1.name-s1=name-s1 u1@ns-s3.name-s3=name-s3"},
			{"13", "u1@ns-s1.name-s1=name-s1 u1@ns-s3.name-s3=name-s3"},
			{"013", "u1=name-s0 u1@ns-s1.name-s1=name-s1 u1@ns-s3.name-s3=name-s3"},
			{"2", "u1=name-s2"},
			{"02", "u1=name-s2 u1@ns-s0.name-s0=name-s0"}, // although it is older
		} {
			fake.Sandboxes = nil
			for _, digit := range tc.listed {
				fake.Sandboxes = append(fake.Sandboxes, pods[digit-'0'])
			}
			var got []string
			for _, p := range listPods(t, client) {
				got = append(got, fmt.Sprintf("%s=%s", p.UID, p.Name))
			}
			if slices.Sort(got); strings.Join(got, " ") != tc.want {
				t.Errorf("list %d: %q, want %q", n, got, tc.want)
			}
			counted += strings.Count(tc.want, "@") // each pod under another UID, in each list
			kit.RequireMetric(t, registry, float64(counted), "pleg_malformed_items_total")
		}
	})
}

func present(p *pleg.Pod) []*pleg.Pod {
	if p == nil {
		return nil
	}
	return []*pleg.Pod{p}
}

func ofKubelet(s *runtimeapi.PodSandbox) *runtimeapi.PodSandbox {
	s.Labels["io.kubernetes.pod.uid"] = s.GetMetadata().GetUid()
	return s
}

type listPodCase struct {
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	uid        pleg.PodUID
	whole      int32 // expected lists of all pods
}

func listPodCases() []listPodCase {
	bareSandbox, bareContainer := ofKubelet(sandbox("s1", "u1", 0, 1)), labelled(container("c2", "s1", 1, 3), "u1")
	bareSandbox.Metadata, bareContainer.Metadata = nil, nil
	return []listPodCase{
		{
			"the kubelet's",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u2", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1"), labelled(container("c2", "s2", 1, 2), "u2")},
			"u1", 0,
		},
		{
			"another client's",
			[]*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)},
			[]*runtimeapi.Container{container("c1", "s1", 1, 2)},
			"u1", 1,
		},
		{
			"another client's container in it",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1"), container("c2", "s1", 1, 2)},
			"u1", 1,
		},
		{
			"another client's sandbox beside its own",
			[]*runtimeapi.PodSandbox{ofKubelet(ofPod(sandbox("s1", "u1", 1, 1), "a", "b")), ofPod(sandbox("s2", "u1", 0, 2), "a", "b")},
			nil, "u1", 1,
		},
		{
			"a container with the label of another pod",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u2")},
			"u1", 1,
		},
		{
			"the pod of that label",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u2", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u2")},
			"u2", 1,
		},
		{
			"the first of two pods with the UID",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u1", 0, 2))},
			nil, "u1", 1,
		},
		{
			"the second of two pods with the UID",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u1", 0, 2))},
			nil, "u1@ns-s2.name-s2", 1,
		},
		{
			"without its sandbox", nil, []*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1")}, "u1", 0,
		},
		{"a sandbox without metadata", []*runtimeapi.PodSandbox{bareSandbox}, []*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1")}, "u1", 1},
		{
			"a container without metadata",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1"), bareContainer},
			"u1", 1,
		},
		{"unknown among the kubelet's", []*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))}, nil, "u9", 0},
		{"unknown beside another client's", []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}, nil, "u9", 1},
	}
}

// TestListPodEqualsListPods lists pods of the kubelet and of other clients alone.
func TestListPodEqualsListPods(t *testing.T) {
	for _, tt := range listPodCases() {
		t.Run(tt.name, func(t *testing.T) {
			fake := &rawruntime.Runtime{Sandboxes: tt.sandboxes, Containers: tt.containers}
			client := connect(t, fake, cri.Options{})
			want := slices.DeleteFunc(listPods(t, client), func(p *pleg.Pod) bool { return p.UID != tt.uid })
			fake.Whole.Store(0)
			got, err := client.ListPod(t.Context(), tt.uid)
			if err != nil || show(present(got)) != show(want) {
				t.Errorf("got %s, %v; want %s", show(present(got)), err, show(want))
			}
			if n := fake.Whole.Load(); n != tt.whole {
				t.Errorf("it took %d lists of all, want %d", n, tt.whole)
			}
		})
	}
}

// Before the first list, the client does not know whether the label finds a pod.
func TestListPodBeforeTheFirstList(t *testing.T) {
	fake := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1), ofKubelet(sandbox("s2", "u2", 0, 1))}}
	client := connect(t, fake, cri.Options{})
	broken := &rawruntime.Runtime{Before: func(context.Context, any) error { return status.Error(codes.Internal, "broken") }}
	if _, err := connect(t, broken, cri.Options{}).ListPod(t.Context(), "u1"); status.Code(err) != codes.Internal || !strings.HasPrefix(err.Error(), "list all for pod u1: list ") {
		t.Errorf("a list of all that fails: %v", err)
	}
	for _, uid := range []pleg.PodUID{"u1", "u2"} {
		if got, err := client.ListPod(t.Context(), uid); err != nil || got == nil || got.UID != uid {
			t.Errorf("got %v, %v; want the pod %s", got, err, uid)
		}
	}
	if whole, one := fake.Whole.Load(), fake.One.Load(); whole != 1 || one != 1 {
		t.Errorf("it took %d lists of all and %d of a pod, want 1 and 1", whole, one)
	}
}
