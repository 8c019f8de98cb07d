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

// adapter makes the kubelet's runtime one of the pipeline. Pods and statuses
// pass through it in the kubelet's words too, as their Native.
type adapter struct {
	runtime kubecontainer.Runtime
	// listed is when the last successful list began. Only ListPods, which is
	// never called twice at once, touches it.
	listed time.Time
}

var (
	_ pleg.Runtime   = (*adapter)(nil)
	_ pleg.PodLister = (*adapter)(nil)
)

// ListPods implements [pleg.Runtime]. A list that succeeds is measured by the
// store, once the pods it shows changed have been inspected.
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

// PodStatus implements [pleg.Runtime]. The kubelet's runtime fetches every
// status anew.
func (a *adapter) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	native, ok := pod.Native.(*kubecontainer.Pod)
	if !ok {
		return nil, fmt.Errorf("pod %s was not listed by this runtime", pod.UID)
	}
	status, err := a.runtime.GetPodStatus(ctx, native)
	if err != nil {
		return nil, &inspectionError{at: native.Timestamp, err: err}
	}
	return statusOf(status, native.Timestamp), nil
}

// inspectionError carries what the pod cache gets of a failed inspection: the
// runtime's own error, and the time at which the pod was read.
type inspectionError struct {
	at  time.Time
	err error
}

func (e *inspectionError) Error() string { return e.err.Error() }

func (e *inspectionError) Unwrap() error { return e.err }

// countRunning publishes how many pods run, and how many containers are in each
// state that there is (kubelet v1.36, updateRunningPodAndContainerMetrics).
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
