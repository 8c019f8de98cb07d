//go:build linux

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// apiPod is the state of one pod according to the API server's watch.
type apiPod struct {
	name    string
	deleted bool
	// running contains the ids of containers that were running at some time, exits contains the exit
	// codes of containers that have ended, restarts the restart count by container name.
	running  map[pleg.ContainerID]bool
	exits    map[pleg.ContainerID]int32
	restarts map[string]int32
}

// truth is the state according to the API server's watch of pods so far.
type truth struct {
	mu   sync.Mutex
	pods map[pleg.PodUID]*apiPod
	err  error // the reason why the watch has ended
}

// watchPods follows the pods of all namespaces until the test ends.
func (c *cluster) watchPods(t *testing.T) *truth {
	t.Helper()
	tr := &truth{pods: make(map[pleg.PodUID]*apiPod)}
	ctx, cancel := context.WithCancel(context.Background())
	watch := exec.CommandContext(ctx, program(t, "kubectl"), "--kubeconfig", kubeconfig,
		"get", "pods", "--all-namespaces", "--watch", "--output-watch-events", "--output", "json")
	out, err := watch.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, watch.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for events := json.NewDecoder(out); ; {
			var ev struct {
				Type   string
				Object corev1.Pod
			}
			if err := events.Decode(&ev); err != nil {
				tr.fail(fmt.Errorf("watch of pods: %w", errors.Join(err, watch.Wait())))
				return
			}
			tr.apply(&ev.Object, ev.Type == "DELETED")
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	process.Eventually(t, "first pods of the watch", func(context.Context) error {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if len(tr.pods) == 0 { // the daemon knows one
			return errors.Join(errors.New("none"), tr.err)
		}
		return nil
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
				continue // the container was never created
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
	// The kubelet makes up the state of a container that the runtime no longer knows.
	if s != nil && s.ContainerID != "" && s.Reason != "ContainerStatusUnknown" {
		p.exits[containerID(s.ContainerID)] = s.ExitCode
	}
}

func containerID(s string) pleg.ContainerID {
	_, id, _ := strings.Cut(s, "://")
	return pleg.ContainerID(id)
}
