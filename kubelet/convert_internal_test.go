package kubelet

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var states = map[kubecontainer.State]pleg.State{
	kubecontainer.ContainerStateCreated: pleg.StateCreated, kubecontainer.ContainerStateRunning: pleg.StateRunning,
	kubecontainer.ContainerStateExited: pleg.StateExited, kubecontainer.ContainerStateUnknown: pleg.StateUnknown, "new": pleg.StateUnknown,
}

// Each field of a pod and of its status has its place, and what is nil stays so, except in a list.
func TestConversion(t *testing.T) {
	if podOf(nil) != nil || statusOf(nil, &kubecontainer.Pod{}) != nil {
		t.Error("what is nil is a pod or a status")
	}
	for native, state := range states {
		pod := &kubecontainer.Pod{
			ID: "u", Name: "web-0", Namespace: "shop", Timestamp: time.Unix(8, 0),
			Containers: []*kubecontainer.Container{{ID: kubecontainer.ContainerID{Type: "x", ID: "c2"}, PodSandboxID: "s2", Name: "nginx", State: native, CreatedAt: 5}, nil, {ID: kubecontainer.ContainerID{ID: "c1"}, Name: "app"}},
			Sandboxes:  []*kubecontainer.Container{{ID: kubecontainer.ContainerID{ID: "s2"}, State: native}},
		}
		want := &pleg.Pod{
			UID: "u", Name: "web-0", Namespace: "shop", Native: pod,
			Containers: []*pleg.Container{{ID: "c2", SandboxID: "s2", Name: "nginx", State: state, CreatedAt: time.Unix(0, 5)}, {ID: "c1", Name: "app", State: pleg.StateUnknown, CreatedAt: time.Unix(0, 0)}},
			Sandboxes:  []*pleg.Container{{ID: "s2", State: state, CreatedAt: time.Unix(0, 0)}},
		}
		if got := podOf(pod); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		status := &kubecontainer.PodStatus{
			ID: "other", Name: "other", IPs: []string{"10.0.0.1", "::1"},
			ContainerStatuses: []*kubecontainer.Status{nil, {
				ID: kubecontainer.ContainerID{Type: "x", ID: "c2"}, Name: "nginx", State: native, RestartCount: 4, CreatedAt: time.Unix(1, 0), StartedAt: time.Unix(2, 0),
				FinishedAt: time.Unix(3, 0), ExitCode: 7, Reason: "why", Message: "more", Image: "nginx:1", ImageRef: "sha256:1",
			}},
			SandboxStatuses: []*runtimeapi.PodSandboxStatus{
				{Id: "s2", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 6}, CreatedAt: 9}, nil, {Id: "s1"},
			},
		}
		wantStatus := &pleg.PodStatus{
			UID: "u", Name: "web-0", Namespace: "shop", IPs: []string{"10.0.0.1", "::1"}, Native: inspected{status, time.Unix(8, 0)},
			Containers: []*pleg.ContainerStatus{nil, {
				ID: "c2", Name: "nginx", Attempt: 4, State: state, CreatedAt: time.Unix(1, 0), StartedAt: time.Unix(2, 0),
				FinishedAt: time.Unix(3, 0), ExitCode: 7, Reason: "why", Message: "more", Image: "nginx:1", ImageRef: "sha256:1",
			}},
			Sandboxes: []*pleg.SandboxStatus{{ID: "s2", Attempt: 6, CreatedAt: time.Unix(0, 9)}, nil, {ID: "s1", Ready: true, CreatedAt: time.Unix(0, 0)}},
		}
		if got := statusOf(status, pod); !reflect.DeepEqual(got, wantStatus) {
			t.Errorf("got %+v, want %+v", got, wantStatus)
		}
	}
}

// The errors of the runtime are wrapped with what was asked. Nil pods are not counted.
func TestAdapterErrors(t *testing.T) {
	broken := errors.New("broken")
	runtime := &containertest.FakeRuntime{Err: broken}
	a := &adapter{runtime: runtime}
	_, ofAll := a.ListPods(t.Context())
	_, ofOne := a.ListPod(t.Context(), "u")
	_, ofStatus := a.PodStatus(t.Context(), &pleg.Pod{UID: "u", Native: &kubecontainer.Pod{}}, nil)
	for err, want := range map[error]string{ofAll: "get pods: broken", ofOne: "get pod u: broken", ofStatus: "broken"} {
		if !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := a.PodStatus(t.Context(), &pleg.Pod{UID: "u"}, nil); err == nil || err.Error() != "pod u was not listed by this runtime" {
		t.Errorf("of another runtime: %v", err)
	}
	if status, at, err := nativeOf(&pleg.PodStatus{}, nil, time.Unix(3, 0)); status != nil || !at.Equal(time.Unix(3, 0)) || err == nil || err.Error() != "the status is not from the kubelet's runtime" {
		t.Errorf("of another runtime: %+v of %v, %v", status, at, err)
	}
	a.runtime = holes{runtime}
	if pods, err := a.ListPods(t.Context()); err != nil || len(pods) != 1 || pods[0] != nil {
		t.Errorf("got %+v, %v, want a nil pod", pods, err)
	}
	if pod, err := a.ListPod(t.Context(), "u"); pod != nil || err != nil {
		t.Errorf("a pod that is gone: %+v, %v", pod, err)
	}
}

// holes is a runtime whose list has a nil pod, and no other.
type holes struct{ kubecontainer.Runtime }

func (holes) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	return make([]*kubecontainer.Pod, 1), nil
}

func (holes) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	return nil, kubecontainer.ErrPodNotFound
}
