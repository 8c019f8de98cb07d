//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const (
	base = "resources: [../deploy/base]\n"
	// upgraded is the base with the next version of the image.
	upgraded = base + "images: [{name: localhost/pleg-pipeline, newTag: v0.1.1}]\n"
	fleet    = `resources: [../deploy/overlays/fleet]
configMapGenerator: [{name: pleg-pipeline, namespace: pleg-pipeline, behavior: merge, files: [pleg-pipeline.yaml]}]
`
)

// requireCanary tries a version on one node, rolls back, rolls out, and rolls back later, by the
// commands of docs/operations.md, and looks at the page.
func (c *cluster) requireCanary(first string) {
	c.t.Helper()
	runs := func(version string) {
		c.t.Helper()
		process.Eventually(c.t, "version "+version, func(ctx context.Context) error {
			pod, err := c.onlyPod(ctx)
			if err != nil {
				return err
			}
			if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, version) || !pod.Status.ContainerStatuses[0].Ready {
				return fmt.Errorf("%s, ready %t", image, pod.Status.ContainerStatuses[0].Ready)
			}
			return nil
		})
	}
	do := func(command ...string) { c.kubectl(append([]string{"-n", "pleg-pipeline"}, command...)...) }
	c.apply(first)
	runs("v0.1.0")
	do("patch", "daemonset", "pleg-pipeline", "-p", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	do("set", "image", "daemonset", "pleg-pipeline", "pleg-pipeline=localhost/pleg-pipeline:v0.1.1")
	runs("v0.1.0")
	do("delete", "pod", "--field-selector", "spec.nodeName="+c.pod().Spec.NodeName)
	runs("v0.1.1")
	c.apply(first)
	runs("v0.1.0")
	c.apply(c.overlay("upgraded", upgraded))
	runs("v0.1.1")
	do("rollout", "undo", "daemonset", "pleg-pipeline")
	runs("v0.1.0")

	start(c.t, program(c.t, "kubectl"), "--kubeconfig", kubeconfig, "-n", "pleg-pipeline", "port-forward", c.pod().Name, "19713:9713")
	process.Eventually(c.t, "page", func(ctx context.Context) error {
		_, err := process.Get(ctx, http.DefaultClient, "http://localhost:19713/")
		return err
	})
}

// TestCluster applies deploy/ to a cluster, compares the daemon's events with the API
// server's watch of pods under faults, and removes it.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	first := c.overlay("base", base)
	c.apply(first)
	c.requireVersion("v0.1.0")

	t.Run("every folder is accepted", func(t *testing.T) { c.in(t).requireAccepted() })
	t.Run("storm and restart of containerd", func(t *testing.T) {
		c := c.in(t)
		tr, h := c.watchPods(t), follow(t)
		c.storm("storm", tr, h, true, c.node.restartContainerd)
		if gaps := h.marks(pleg.Gap); gaps != 0 {
			t.Errorf("%d Gaps, want none: the daemon did not restart", gaps)
		}
		if n := c.pod().Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("the daemon restarted %d times", n)
		}
		c.report(h)
	})
	t.Run("canary", func(t *testing.T) { c.in(t).requireCanary(first) })
	t.Run("upgrade", func(t *testing.T) {
		c := c.in(t)
		tr, h := c.watchPods(t), follow(t)
		c.storm("upgrade", tr, h, false, func() {
			c.apply(c.overlay("upgraded", upgraded))
			process.Eventually(t, "Gap and replay", func(context.Context) error {
				if gaps, synced := h.marks(pleg.Gap), h.marks(pleg.Synced); gaps != 1 || synced < 2 {
					return fmt.Errorf("%d Gaps, %d Synced, want 1 and 2", gaps, synced)
				}
				return nil
			})
		})
		c.requireVersion("v0.1.1")
	})
	t.Run("containerd is down", func(t *testing.T) { c.in(t).requireOutage() })
	t.Run("fleet", func(t *testing.T) { c.in(t).requireFleet() })
	t.Run("web-config with TLS", func(t *testing.T) { c.in(t).requireTLS() })
	t.Run("removal", func(t *testing.T) { c.in(t).requireRemoved(first) })
	t.Run("the pipeline in the kubelet", func(t *testing.T) {
		c := c.in(t)
		c.node.startKubelet("kubelet-pipeline")
		c.awaitNode()
		c.apply(first)
		c.storm("kubelet", c.watchPods(t), follow(t), true, func() {})
		c.requireRemoved(first)
	})
}

// storm compares the events with the watch while a storm begins, changes and ends, and a fault
// happens in it. full is passed to [differences].
func (c *cluster) storm(namespace string, tr *truth, h *history, full bool, happens func()) {
	c.t.Helper()
	s := c.startStorm(namespace)
	happens()
	s.settle()
	s.change()
	s.settle()
	c.requireEqual(tr, h, full)
	s.end()
	c.requireEqual(tr, h, full)
}

// in returns c for a subtest. Processes that are started in it still end with the
// whole test.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.t = t
	return &inner
}

// pod returns the only pod of the DaemonSet.
func (c *cluster) pod() *corev1.Pod {
	c.t.Helper()
	var pod *corev1.Pod
	process.Eventually(c.t, "pod of the DaemonSet", func(ctx context.Context) (err error) {
		pod, err = c.onlyPod(ctx)
		return err
	})
	return pod
}

// onlyPod returns the pod of the DaemonSet, if there is exactly one with a container.
func (c *cluster) onlyPod(ctx context.Context) (*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.get(ctx, &list, "pods", "--namespace", "pleg-pipeline"); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || len(list.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("%d pods", len(list.Items))
	}
	return &list.Items[0], nil
}

// requireEqual waits until the events and the watch agree. A crash loop never rests, so for a
// moment the events or the watch may be ahead.
func (c *cluster) requireEqual(tr *truth, h *history, full bool) {
	c.t.Helper()
	process.Eventually(c.t, "equality of the events and the API server's watch", func(context.Context) error {
		if diffs := differences(tr, h, full); len(diffs) > 0 {
			return errors.New(strings.Join(diffs, "\n"))
		}
		return nil
	})
}

func (c *cluster) report(h *history) {
	h.mu.Lock()
	defer h.mu.Unlock()
	containers, unseen := h.containers(), 0
	for _, container := range containers {
		if container.started == 0 {
			unseen++
		}
	}
	c.t.Logf("%d containers and sandboxes; %d of them had already exited when they were first seen", len(containers), unseen)
}

// requireRemoved deletes a folder and requires that nothing is left on the node except the empty
// folder of the socket, which Kubernetes made.
func (c *cluster) requireRemoved(dir string) {
	c.t.Helper()
	pod := c.pod()
	uid, id := string(pod.UID), string(containerID(pod.Status.ContainerStatuses[0].ContainerID))
	found, err := c.node.traces(process.Bounded(c.t), uid, id)
	kit.Must(c.t, err)
	for kind, traces := range found {
		if len(traces) == 0 {
			c.t.Errorf("the running daemon has no %s: the check of its removal does not find them", kind)
		}
	}
	began := time.Now()
	c.kubectl("delete", "-k", dir, fmt.Sprintf("--timeout=%v", process.WaitTimeout))
	process.Eventually(c.t, "removal without a trace", func(ctx context.Context) error {
		found, err := c.node.traces(ctx, uid, id)
		for kind, traces := range found {
			if len(traces) > 0 {
				err = errors.Join(err, fmt.Errorf("%s: %q", kind, traces))
			}
		}
		return err
	})
	c.t.Logf("removed in %v", time.Since(began).Round(time.Millisecond))
}
