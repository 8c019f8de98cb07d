package cri_test

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

func sandboxStatus(id string, ready bool, created int64, ips ...string) *runtimeapi.PodSandboxStatusResponse {
	st := &runtimeapi.PodSandboxStatus{Id: id, CreatedAt: created, Labels: map[string]string{"l": id}, Annotations: map[string]string{"a": id}}
	if !ready {
		st.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	if len(ips) > 0 {
		st.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ips[0]}
		for _, ip := range ips[1:] {
			st.Network.AdditionalIps = append(st.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: st}
}

func pod(sandboxes, containers []string) *pleg.Pod {
	p := &pleg.Pod{UID: "u1", Name: "web", Namespace: "prod"}
	for _, id := range sandboxes {
		p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(id), Name: "web", Attempt: 2, State: pleg.StateRunning})
	}
	for _, id := range containers {
		p.Containers = append(p.Containers, &pleg.Container{ID: pleg.ContainerID(id), Name: "name-" + id, Attempt: 3, State: pleg.StateRunning})
	}
	return p
}

func TestPodStatus(t *testing.T) {
	host := sandboxStatus("s0", false, 300, "10.9.9.9") // dead, although it is the newest
	host.Status.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
		Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	fake := &rawruntime.Runtime{
		SandboxStatuses: map[string]*runtimeapi.PodSandboxStatusResponse{
			"s2": sandboxStatus("s2", true, 200, "10.0.0.2", "fd00::2", ""),
			"s1": sandboxStatus("s1", true, 100, "10.0.0.1"),
			"s3": sandboxStatus("s3", true, 150, "10.0.0.3"),
			"s0": host, "later": {Status: &runtimeapi.PodSandboxStatus{Id: "later", State: 99}},
		},
		ContainerStatuses: map[string]*runtimeapi.ContainerStatusResponse{"c1": {Status: &runtimeapi.ContainerStatus{
			Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: 1, StartedAt: 2, FinishedAt: 3,
			ExitCode: 137, Reason: "OOMKilled", Message: "too much",
			Image: &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "nginx:1"}, ImageRef: "nginx@sha256:2", LogPath: "/logs/c1",
			Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"restarts": "3"},
		}}, "c2": {Status: &runtimeapi.ContainerStatus{
			Id: "c2", State: 99, Image: &runtimeapi.ImageSpec{Image: "busybox"},
		}}},
	}
	client := connect(t, fake, cri.Options{})
	listed := pod([]string{"s1", "s2", "s3", "gone", "s0", "later"}, []string{"c1", "left", "c2"})
	listed.Containers[2].State, listed.Sandboxes[5].State = pleg.StateUnknown, pleg.StateUnknown // of a later version of the CRI
	got, err := client.PodStatus(t.Context(), listed, nil)
	must(t, err)
	labels := func(id string) map[string]string { return map[string]string{"l": id} }
	annotations := func(id string) map[string]string { return map[string]string{"a": id} }
	want := &pleg.PodStatus{
		UID: "u1", Name: "web", Namespace: "prod", IPs: []string{"10.0.0.2", "fd00::2"},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s1", Attempt: 2, Ready: true, CreatedAt: time.Unix(0, 100), IPs: []string{"10.0.0.1"}, Labels: labels("s1"), Annotations: annotations("s1")},
			{ID: "s2", Attempt: 2, Ready: true, CreatedAt: time.Unix(0, 200), IPs: []string{"10.0.0.2", "fd00::2"}, Labels: labels("s2"), Annotations: annotations("s2")},
			{ID: "s3", Attempt: 2, Ready: true, CreatedAt: time.Unix(0, 150), IPs: []string{"10.0.0.3"}, Labels: labels("s3"), Annotations: annotations("s3")},
			{ID: "s0", Attempt: 2, CreatedAt: time.Unix(0, 300), HostNetwork: true, Labels: labels("s0"), Annotations: annotations("s0")},
			{ID: "later", Attempt: 2},
		},
		Containers: []*pleg.ContainerStatus{
			{
				ID: "c1", Name: "name-c1", Attempt: 3, State: pleg.StateExited,
				CreatedAt: time.Unix(0, 1), StartedAt: time.Unix(0, 2), FinishedAt: time.Unix(0, 3),
				ExitCode: 137, Reason: "OOMKilled", Message: "too much", Image: "nginx:1", ImageRef: "nginx@sha256:2", LogPath: "/logs/c1",
				Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"restarts": "3"},
			},
			{ID: "c2", Name: "name-c2", Attempt: 3, State: pleg.StateUnknown, Image: "busybox"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPodStatusErrors(t *testing.T) {
	container := func(st *runtimeapi.ContainerStatus) *runtimeapi.ContainerStatusResponse {
		return &runtimeapi.ContainerStatusResponse{Status: st}
	}
	noSandbox, noContainer := &runtimeapi.PodSandboxStatusResponse{}, container(nil)
	for _, tt := range []struct {
		name      string
		sandbox   *runtimeapi.PodSandboxStatusResponse // of the sandbox s, if there is one
		container *runtimeapi.ContainerStatusResponse  // of the container c, if there is one
		fails     error                                // other answers in place of the sandbox and the container
		words     string
		code      codes.Code
	}{
		{"a sandbox's call fails", noSandbox, nil, status.Error(codes.Internal, "shim is hung"), "PodSandboxStatus s: ", codes.Internal},
		{
			"a container's call fails", nil, noContainer, status.Error(codes.Unavailable, "later"),
			"ContainerStatus of name-c c: ", codes.Unavailable,
		},
		{"no status of a sandbox", noSandbox, nil, nil, "PodSandboxStatus s: malformed answer: no status in it", codes.Unknown},
		{"no status of a container", nil, noContainer, nil, "ContainerStatus of name-c c: malformed answer: no status in it", codes.Unknown},
		{
			"the status of another", nil, container(&runtimeapi.ContainerStatus{Id: "other"}), nil,
			`ContainerStatus of name-c c: malformed answer: the status is of "other"`, codes.Unknown,
		},
		{
			"text that is not UTF-8", nil,
			container(&runtimeapi.ContainerStatus{Id: "c", Metadata: withField(&runtimeapi.ContainerMetadata{}, badName)}), nil,
			"ContainerStatus of name-c c: ", codes.Internal,
		},
		{
			"a state of a container that the list does not know", nil, container(&runtimeapi.ContainerStatus{Id: "c", State: 99}), nil,
			"ContainerStatus of name-c c: malformed answer: there is no state 99, and the list says running", codes.Unknown,
		},
		{
			"a state of a sandbox that the list does not know",
			&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s", State: 99}}, nil, nil,
			"PodSandboxStatus s: malformed answer: there is no state 99, and the list says running", codes.Unknown,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake, listed := &rawruntime.Runtime{Before: func(context.Context, any) error { return tt.fails }}, pod(nil, []string{"c"})
			fake.ContainerStatuses = map[string]*runtimeapi.ContainerStatusResponse{"c": tt.container}
			if tt.sandbox != nil {
				listed = pod([]string{"s"}, nil)
				fake.SandboxStatuses = map[string]*runtimeapi.PodSandboxStatusResponse{"s": tt.sandbox}
			}
			got, err := connect(t, fake, cri.Options{}).PodStatus(t.Context(), listed, nil)
			if got != nil || err == nil || !strings.HasPrefix(err.Error(), tt.words) || tt.code == codes.Unknown && err.Error() != tt.words {
				t.Fatalf("got %v, error %v; want an error that begins with %q", got, err, tt.words)
			}
			failed, ok := errors.AsType[*pleg.CallError](err)
			if !ok || failed.Call.PodUID != listed.UID || len(listed.Containers) > 0 != (failed.Call.ID == "c") {
				t.Errorf("the error is of the call %+v, want that of the pod's status", failed)
			}
			if code := status.Code(err); code != tt.code {
				t.Errorf("code %v of %v, want %v", code, err, tt.code)
			}
			var grpcError interface{ GRPCStatus() *status.Status }
			if errors.As(err, &grpcError) != (tt.code != codes.Unknown) {
				t.Errorf("is %v a grpc error: %t", err, tt.code == codes.Unknown)
			}
		})
	}
}

// TestCallsNameWhatHangs requires that each call in flight names its pod, method and container
// until it has returned. The oldest is the first; of one time they are in the order of their methods and ids.
func TestCallsNameWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		rt.Populate(simruntime.Population{Pods: 1, Containers: 2})
		p := listPods(t, client)[0]
		bare := rt.AddPod(simruntime.PodSpec{})
		rt.Inject(simruntime.Fault{RPC: "PodSandboxStatus", PodUID: bare.UID, Hang: true})
		for _, rpc := range []string{"ContainerStatus", "ListContainers", "ListPodSandbox", "Version"} {
			rt.Inject(simruntime.Fault{RPC: rpc, Hang: true})
		}
		first := time.Now()
		for _, call := range []func(){
			func() { _, _ = client.PodStatus(t.Context(), p, nil) },
			func() { _, _ = client.ListPods(t.Context()) },
			func() { _, _ = client.ListPod(t.Context(), p.UID) },
			func() { _ = client.Probe(t.Context()) },
			func() {
				listed := &pleg.Pod{UID: bare.UID, Sandboxes: []*pleg.Container{{ID: bare.Sandboxes[0].ID, State: pleg.StateRunning}}}
				_, _ = client.PodStatus(t.Context(), listed, nil)
			},
		} {
			go call()
			time.Sleep(time.Second)
		}
		c := slices.SortedFunc(slices.Values(p.Containers), func(a, b *pleg.Container) int { return cmp.Compare(a.ID, b.ID) })
		want := []pleg.Call{
			{Method: "ContainerStatus", PodUID: p.UID, ID: c[0].ID, Container: c[0].Name, Started: first},
			{Method: "ContainerStatus", PodUID: p.UID, ID: c[1].ID, Container: c[1].Name, Started: first},
			{Method: "ListContainers", Started: first.Add(time.Second)},
			{Method: "ListPodSandbox", Started: first.Add(time.Second)},
			{Method: "ListContainers", PodUID: p.UID, Started: first.Add(2 * time.Second)},
			{Method: "ListPodSandbox", PodUID: p.UID, Started: first.Add(2 * time.Second)},
			{Method: "Version", Started: first.Add(3 * time.Second)},
			{Method: "PodSandboxStatus", PodUID: bare.UID, ID: bare.Sandboxes[0].ID, Started: first.Add(4 * time.Second)},
		}
		for range 20 { // the calls are kept in no order
			if got := client.Report().Calls; !slices.Equal(got, want) {
				t.Errorf("in flight are %+v, want %+v", got, want)
			}
		}
		rt.ClearAll()
		synctest.Wait()
		if got := client.Report().Calls; len(got) != 0 {
			t.Errorf("calls in flight after all have returned: %+v", got)
		}
	})
}
