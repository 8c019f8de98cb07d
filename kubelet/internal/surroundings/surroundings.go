// Package surroundings connects a generator to a container runtime as the kubelet does: with its
// CRI client and its runtime manager.
package surroundings

import (
	"context"
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
)

// Client returns the builder of the kubelet's CRI client for a unix socket. Each call has the
// timeout. If the second step of kubelet/upstream is built in, it is on, as in the kubelet.
func Client(socket string, timeout time.Duration) *remote.RemoteRuntimeServiceBuilder {
	builder := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + socket).
		WithConnectionTimeout(timeout).WithTracerProvider(noop.NewTracerProvider())
	if step, ok := any(builder).(interface {
		WithReuseListedItems(bool) *remote.RemoteRuntimeServiceBuilder
	}); ok {
		return step.WithReuseListedItems(true)
	}
	return builder
}

// Manager connects and returns the kubelet's runtime manager, with stubs for the parts that start
// pods: a relist uses none of them. Its files are in root.
func Manager(ctx context.Context, client *remote.RemoteRuntimeServiceBuilder, root string) (kubecontainer.Runtime, error) {
	service, err := client.Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime: %w", err)
	}
	yes := true
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(ctx,
		&record.FakeRecorder{},
		proberesults.NewManager(), proberesults.NewManager(), proberesults.NewManager(),
		root, root, &cadvisorapi.MachineInfo{MachineID: "bench"},
		nil, 110, kubecontainer.RealOS{}, nil, nil,
		flowcontrol.NewBackOff(time.Second, time.Minute),
		true, nil, 0, 0, "NeverVerify", nil, "", "", &yes, false, metav1.Duration{Duration: 100 * time.Millisecond}, nil,
		service, noImages{},
		cm.NewStubContainerManager(), logs.NewStubContainerLogManager(), nil,
		false, "", nil, nil, "", nil, noop.NewTracerProvider(), nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create runtime manager: %w", err)
	}
	return manager, nil
}

// noImages is an image service that no relist calls.
type noImages struct {
	internalapi.ImageManagerService
}
