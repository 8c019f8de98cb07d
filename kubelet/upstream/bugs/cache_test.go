//go:build bugs

package pleg_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/lib/model"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/utils/clock"
)

// eventedRuntime is a runtime whose sandbox statuses have a timestamp and the statuses of
// the containers, as those of CRI-O with enable_pod_events. Container "brief" runs only
// while a sandbox status is read, so that no list has it.
type eventedRuntime struct {
	internalapi.RuntimeService
}

var sandbox = &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "test", Uid: "pod"}

func (eventedRuntime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (eventedRuntime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{{Id: "sandbox", Metadata: sandbox}}, nil
}

func (eventedRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return nil, nil
}

func (eventedRuntime) PodSandboxStatus(context.Context, string, bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{
		Status:    &runtimeapi.PodSandboxStatus{Id: "sandbox", Metadata: sandbox},
		Timestamp: time.Now().UnixNano(),
		ContainersStatuses: []*runtimeapi.ContainerStatus{{
			Id: "brief", Metadata: &runtimeapi.ContainerMetadata{Name: "brief"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Image: &runtimeapi.ImageSpec{Image: "image"}, Labels: map[string]string{"io.kubernetes.container.name": "brief"},
		}},
	}, nil
}

type noImages struct {
	internalapi.ImageManagerService
}

// Title: with EventedPLEG the pod cache confirms a running container that is gone
//
// What happened: the gate is on, and the runtime fills timestamp and containers_statuses of
// PodSandboxStatus, as CRI-O does with enable_pod_events. A relist lists a changed pod. A
// container starts. GetPodStatus takes it from containers_statuses, although it was not listed,
// and the cache stores it. The container is removed before the next list. That list equals the
// record, so nothing is inspected, and UpdateTime claims that the cache is correct up to now.
// GetNewerThan returns the container as running until the pod changes again.
//
// Expected: the status has only the containers that were listed, as without the gate.
//
// How to reproduce: copy this file to pkg/kubelet/pleg without its first line, and run the
// test.
//
// Version: v1.37.1. Related: #140849 (open) removes the use of containers_statuses.
func TestCacheHasNoContainerThatIsGone(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EventedPLEG, true)
	ctx := klog.NewContext(t.Context(), logr.Discard())
	root, yes, tracing := t.TempDir(), true, noop.NewTracerProvider()
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(ctx, &record.FakeRecorder{},
		proberesults.NewManager(), proberesults.NewManager(), proberesults.NewManager(),
		root, root, &cadvisorapi.MachineInfo{}, nil, 1, kubecontainer.RealOS{}, nil, nil,
		flowcontrol.NewBackOff(time.Second, time.Minute), true, nil, 0, 0, "NeverVerify", nil, "", "", &yes, false,
		metav1.Duration{Duration: time.Second}, nil, eventedRuntime{}, noImages{},
		cm.NewStubContainerManager(), logs.NewStubContainerLogManager(), nil,
		false, "", nil, nil, "", nil, tracing, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cache, events := kubecontainer.NewCache(), make(chan *pleg.PodLifecycleEvent, 10)
	durations := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	generic := pleg.NewGenericPLEG(manager, events, durations, cache, clock.RealClock{}).(*pleg.GenericPLEG)
	generic.Relist(ctx) // inspects the new pod while the container runs
	gone := time.Now()
	for range 10 {
		generic.Relist(ctx)
	}
	status, err := cache.GetNewerThan("pod", gone)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.ContainerStatuses {
		t.Errorf("10 relists after the container was removed, the cache has %v, %v", c.ID, c.State)
	}
}
