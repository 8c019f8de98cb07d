package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// adapter implements pleg.Runtime with the kubelet's runtime. The Native of a pod or
// status is the kubelet's own.
type adapter struct {
	runtime kubecontainer.Runtime
	// listed is the time at which the last successful list began. Only ListPods uses it, which
	// never runs concurrent calls.
	listed time.Time
}

var (
	_ pleg.Runtime   = (*adapter)(nil)
	_ pleg.PodLister = (*adapter)(nil)
)

// ListPods implements [pleg.Runtime]. The store measures the duration of a
// successful list, which includes the inspections it causes.
func (a *adapter) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	start := time.Now()
	if !a.listed.IsZero() {
		metrics.PLEGRelistInterval.Observe(start.Sub(a.listed).Seconds())
	}
	natives, err := a.runtime.GetPods(ctx, true)
	if err != nil {
		metrics.PLEGRelistDuration.Observe(time.Since(start).Seconds())
		return nil, fmt.Errorf("get pods: %w", err)
	}
	a.listed = start
	metrics.PLEGLastSeen.Set(float64(start.Unix()))
	countRunning(natives)
	pods := make([]*pleg.Pod, len(natives))
	for i, native := range natives {
		pods[i] = podOf(native)
	}
	return pods, nil
}

// ListPod implements [pleg.PodLister].
func (a *adapter) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	start := time.Now()
	native, err := a.runtime.GetPod(ctx, types.UID(uid))
	metrics.PLEGPodRelistDuration.Observe(time.Since(start).Seconds())
	switch {
	case errors.Is(err, kubecontainer.ErrPodNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", uid, err)
	default:
		return podOf(native), nil
	}
}

// PodStatus implements [pleg.Runtime]. It does not use the previous status: the
// kubelet's runtime always fetches all statuses.
func (a *adapter) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	native, ok := pod.Native.(*kubecontainer.Pod)
	if !ok {
		return nil, fmt.Errorf("pod %s was not listed by this runtime", pod.UID)
	}
	status, err := a.runtime.GetPodStatus(ctx, native)
	if err != nil {
		return nil, &inspectionError{at: native.Timestamp, status: status, err: err}
	}
	return statusOf(status, native), nil
}

// inspectionError is the runtime's error of a failed inspection, with the status
// beside it, if any, and the time at which the pod was listed. The pod cache gets all
// of them.
type inspectionError struct {
	at     time.Time
	status *kubecontainer.PodStatus
	err    error
}

func (e *inspectionError) Error() string { return e.err.Error() }

func (e *inspectionError) Unwrap() error { return e.err }

// countRunning sets the metrics for running pods and for containers in each state,
// as updateRunningPodAndContainerMetrics does in kubelet v1.37.
func countRunning(pods []*kubecontainer.Pod) {
	running := 0
	states := make(map[kubecontainer.State]int)
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		for _, c := range pod.Containers {
			states[c.State]++
		}
		for _, s := range pod.Sandboxes {
			if s.State == kubecontainer.ContainerStateRunning {
				running++
				break
			}
		}
	}
	for state, n := range states {
		metrics.RunningContainerCount.WithLabelValues(string(state)).Set(float64(n))
	}
	metrics.RunningPodCount.Set(float64(running))
}
