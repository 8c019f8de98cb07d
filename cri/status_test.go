package cri_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// statuses answers from maps. An id that is not in them is NotFound.
type statuses struct {
	sandboxes  map[string]*runtimeapi.PodSandboxStatusResponse
	containers map[string]*runtimeapi.ContainerStatusResponse
	err        error // returned for the id "broken"
	mu         sync.Mutex
	asked      []string
}

func (s *statuses) runtime() *fakeRuntime {
	return &fakeRuntime{
		sandboxStatus: func(_ context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			answer, ok := s.sandboxes[id]
			return answer, s.answer(id, ok)
		},
		containerStatus: func(_ context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
			answer, ok := s.containers[id]
			return answer, s.answer(id, ok)
		},
	}
}

func (s *statuses) answer(id string, known bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, id)
	switch {
	case id == "broken":
		return s.err
	case !known:
		return status.Errorf(codes.NotFound, "no %s", id)
	}
	return nil
}

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
	fake := &statuses{
		sandboxes: map[string]*runtimeapi.PodSandboxStatusResponse{
			"s2": sandboxStatus("s2", true, 200, "10.0.0.2", "fd00::2", ""),
			"s1": sandboxStatus("s1", true, 100, "10.0.0.1"),
			"s0": host,
		},
		containers: map[string]*runtimeapi.ContainerStatusResponse{"c1": {Status: &runtimeapi.ContainerStatus{
			Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: 1, StartedAt: 2, FinishedAt: 3,
			ExitCode: 137, Reason: "OOMKilled", Message: "too much",
			Image: &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "nginx:1"}, ImageRef: "nginx@sha256:2",
			Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"restarts": "3"},
		}}, "c2": {Status: &runtimeapi.ContainerStatus{
			Id: "c2", State: 99, Image: &runtimeapi.ImageSpec{Image: "busybox"},
		}}},
	}
	client := connect(t, fake.runtime(), cri.Options{})
	listed := pod([]string{"s1", "s2", "gone", "s0"}, []string{"c1", "left", "c2"})
	listed.Containers[2].State = pleg.StateUnknown // of a later version of the CRI
	got, err := client.PodStatus(t.Context(), listed, nil)
	must(t, err)
	labels := func(id string) map[string]string { return map[string]string{"l": id} }
	annotations := func(id string) map[string]string { return map[string]string{"a": id} }
	want := &pleg.PodStatus{
		UID: "u1", Name: "web", Namespace: "prod", IPs: []string{"10.0.0.2", "fd00::2"},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s1", Attempt: 2, Ready: true, CreatedAt: time.Unix(0, 100), IPs: []string{"10.0.0.1"}, Labels: labels("s1"), Annotations: annotations("s1")},
			{ID: "s2", Attempt: 2, Ready: true, CreatedAt: time.Unix(0, 200), IPs: []string{"10.0.0.2", "fd00::2"}, Labels: labels("s2"), Annotations: annotations("s2")},
			{ID: "s0", Attempt: 2, CreatedAt: time.Unix(0, 300), HostNetwork: true, Labels: labels("s0"), Annotations: annotations("s0")},
		},
		Containers: []*pleg.ContainerStatus{
			{
				ID: "c1", Name: "name-c1", Attempt: 3, State: pleg.StateExited,
				CreatedAt: time.Unix(0, 1), StartedAt: time.Unix(0, 2), FinishedAt: time.Unix(0, 3),
				ExitCode: 137, Reason: "OOMKilled", Message: "too much", Image: "nginx:1", ImageRef: "nginx@sha256:2",
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
	wrong := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "other"}}
	for _, tt := range []struct {
		name  string
		fake  *statuses
		pod   *pleg.Pod
		words string
		code  codes.Code
	}{
		{
			"a sandbox's call fails", &statuses{err: status.Error(codes.Internal, "shim is hung")},
			pod([]string{"broken"}, nil), "PodSandboxStatus broken: ", codes.Internal,
		},
		{
			"a container's call fails", &statuses{err: status.Error(codes.Unavailable, "later")},
			pod(nil, []string{"gone", "broken"}), "ContainerStatus of name-broken broken: ", codes.Unavailable,
		},
		{
			"no status of a sandbox", &statuses{sandboxes: map[string]*runtimeapi.PodSandboxStatusResponse{"s": {}}},
			pod([]string{"s"}, nil), "PodSandboxStatus s: malformed answer: no status", codes.Unknown,
		},
		{
			"no status of a container", &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{"c": {}}},
			pod(nil, []string{"c"}), "ContainerStatus of name-c c: malformed answer: no status", codes.Unknown,
		},
		{
			"the status of another", &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{"c": wrong}},
			pod(nil, []string{"c"}), `ContainerStatus of name-c c: malformed answer: the status is that of "other"`, codes.Unknown,
		},
		{
			"text that is not UTF-8", &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{"c": {Status: &runtimeapi.ContainerStatus{
				Id: "c", Metadata: withField(&runtimeapi.ContainerMetadata{}, badName),
			}}}},
			pod(nil, []string{"c"}), "ContainerStatus of name-c c: ", codes.Internal,
		},
		{
			"a state of a container that the list does not know", &statuses{containers: map[string]*runtimeapi.ContainerStatusResponse{
				"c": {Status: &runtimeapi.ContainerStatus{Id: "c", State: 99}},
			}},
			&pleg.Pod{UID: "u1", Containers: []*pleg.Container{{ID: "c", State: pleg.StateRunning}}},
			"ContainerStatus c: malformed answer: there is no state 99, and the list says running", codes.Unknown,
		},
		{
			"a state of a sandbox that the list does not know", &statuses{sandboxes: map[string]*runtimeapi.PodSandboxStatusResponse{
				"s": {Status: &runtimeapi.PodSandboxStatus{Id: "s", State: 99}},
			}},
			&pleg.Pod{UID: "u1", Sandboxes: []*pleg.Container{{ID: "s", State: pleg.StateExited}}},
			"PodSandboxStatus s: malformed answer: there is no state 99, and the list says exited", codes.Unknown,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := connect(t, tt.fake.runtime(), cri.Options{}).PodStatus(t.Context(), tt.pod, nil)
			if got != nil || err == nil || !strings.HasPrefix(err.Error(), tt.words) {
				t.Fatalf("got %v, error %v; want an error that begins with %q", got, err, tt.words)
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

// TestCallsNameWhatHangs requires that the calls in flight are known by their pod, method
// and container until they have returned.
func TestCallsNameWhatHangs(t *testing.T) {
	answers := &statuses{sandboxes: map[string]*runtimeapi.PodSandboxStatusResponse{"s1": sandboxStatus("s1", true, 1)}}
	fake := answers.runtime()
	asked, release := make(chan struct{}), make(chan struct{})
	hang := func() {
		asked <- struct{}{}
		<-release
	}
	fake.containerStatus = func(_ context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
		hang()
		return nil, status.Errorf(codes.NotFound, "no %s", id)
	}
	fake.listContainers = func(context.Context) (*runtimeapi.ListContainersResponse, error) {
		hang()
		return &runtimeapi.ListContainersResponse{}, nil
	}
	client := connect(t, fake, cri.Options{UnaryLists: true})
	var calls sync.WaitGroup
	calls.Go(func() { _, _ = client.PodStatus(t.Context(), pod([]string{"s1"}, []string{"c1"}), nil) })
	<-asked
	calls.Go(func() { _, _ = client.ListPods(t.Context()) })
	<-asked
	var got []pleg.Call
	// The calls that do not hang return meanwhile.
	for got = client.Calls(); len(got) > 2; got = client.Calls() {
		time.Sleep(time.Millisecond)
	}
	for n, want := range []pleg.Call{
		{Method: "ContainerStatus", PodUID: "u1", ID: "c1", Container: "name-c1"}, {Method: "ListContainers"},
	} {
		if got[n].Started.IsZero() || time.Since(got[n].Started) < 0 {
			t.Errorf("call %d began at %v", n, got[n].Started)
		}
		want.Started = got[n].Started
		if got[n] != want {
			t.Errorf("call %d in flight is %+v, want %+v", n, got[n], want)
		}
	}
	close(release)
	calls.Wait()
	if got := client.Calls(); len(got) != 0 {
		t.Errorf("calls in flight after all have returned: %+v", got)
	}
}
