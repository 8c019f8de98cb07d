//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// apiPod is what the API server's watch has said of one pod.
type apiPod struct {
	name    string
	deleted bool
	// running has the ids of containers that were running at some time, exits has the exit codes of
	// containers that have ended, restarts the restart count by container name.
	running  map[pleg.ContainerID]bool
	exits    map[pleg.ContainerID]int32
	restarts map[string]int32
}

// truth is what the API server's watch of pods has said so far.
type truth struct {
	mu   sync.Mutex
	pods map[pleg.PodUID]*apiPod
	err  error // why the watch has ended
}

// watchPods follows the pods of all namespaces until the test ends.
func (c *cluster) watchPods(t *testing.T) *truth {
	t.Helper()
	tr := &truth{pods: make(map[pleg.PodUID]*apiPod)}
	ctx, cancel := context.WithCancel(context.Background())
	list, err := c.api.CoreV1().Pods("").List(process.Bounded(t), metav1.ListOptions{})
	kit.Must(t, err)
	for i := range list.Items {
		tr.apply(&list.Items[i], false)
	}
	w, err := c.api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	kit.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range w.ResultChan() {
			if pod, ok := ev.Object.(*corev1.Pod); ok {
				tr.apply(pod, ev.Type == watch.Deleted)
				continue
			}
			tr.fail(fmt.Errorf("watch of pods: %w", apierrors.FromObject(ev.Object)))
		}
		tr.fail(fmt.Errorf("watch of pods has ended"))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return tr
}

func (tr *truth) fail(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.err == nil {
		tr.err = err
	}
}

func (tr *truth) apply(pod *corev1.Pod, deleted bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	p := tr.pods[pleg.PodUID(pod.UID)]
	if p == nil {
		p = &apiPod{
			name: pod.Namespace + "/" + pod.Name, running: make(map[pleg.ContainerID]bool),
			exits: make(map[pleg.ContainerID]int32), restarts: make(map[string]int32),
		}
		tr.pods[pleg.PodUID(pod.UID)] = p
	}
	p.deleted = p.deleted || deleted
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.ContainerID == "" {
				continue // it was never created
			}
			p.restarts[s.Name] = max(p.restarts[s.Name], s.RestartCount)
			if s.State.Running != nil {
				p.running[containerID(s.ContainerID)] = true
			}
			p.ended(s.State.Terminated)
			p.ended(s.LastTerminationState.Terminated)
		}
	}
}

func (p *apiPod) ended(s *corev1.ContainerStateTerminated) {
	// The kubelet makes up the state of a container that the runtime no longer has.
	if s != nil && s.ContainerID != "" && s.Reason != "ContainerStatusUnknown" {
		p.exits[containerID(s.ContainerID)] = s.ExitCode
	}
}

func containerID(s string) pleg.ContainerID {
	_, id, _ := strings.Cut(s, "://")
	return pleg.ContainerID(id)
}
