package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pod is a sandbox on the host's network, which needs no CNI.
type pod struct {
	uid, id string
	config  *runtimeapi.PodSandboxConfig
	steps   []step // in the order in which they were made
}

// step is what was done to a container or sandbox.
type step struct {
	id      string
	sandbox bool
	kind    runtimeapi.ContainerEventType
}

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// did adds what was done to a sandbox or container of a pod.
func (n *node) did(p *pod, id string, kinds ...runtimeapi.ContainerEventType) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[p.uid], n.pods[id] = p, p
	for _, kind := range kinds {
		p.steps = append(p.steps, step{id, id == p.id, kind})
	}
}

func (t *trial) runPod(annotations map[string]string) *pod {
	check(context.Cause(t.ctx))
	// A runtime may finish a cancelled call, and then make a pod that nobody removes.
	ctx := context.WithoutCancel(t.ctx)
	p := &pod{uid: rand.Text()}
	name := "pod-" + strings.ToLower(p.uid)
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: p.uid, Namespace: Namespace},
		Labels: map[string]string{
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": Namespace, "io.kubernetes.pod.uid": p.uid, runLabel: t.run,
		},
		Annotations: annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: t.opts.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	p.id = must(t.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})).GetPodSandboxId()
	t.did(p, p.id, created, started)
	return p
}

// createContainer creates a container that runs this program with arguments.
func (t *trial) createContainer(p *pod, memory int64, args ...string) (id string) {
	name := fmt.Sprintf("c%d", len(p.steps))
	id = must(t.runtime.CreateContainer(t.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: t.opts.Image, UserSpecifiedImage: t.opts.Image},
			Command:  []string{mountPath + "/program"},
			Args:     append([]string{ProgramCommand, noteName(p, name)}, args...),
			Mounts:   []*runtimeapi.Mount{{ContainerPath: mountPath, HostPath: t.program}},
			Labels: map[string]string{
				"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": p.uid,
				"io.kubernetes.pod.name": p.config.GetMetadata().GetName(), "io.kubernetes.pod.namespace": Namespace,
			},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
			},
		},
	})).GetContainerId()
	t.did(p, id, created)
	return id
}

// noteName is the file in which a container writes when it exits.
func noteName(p *pod, container string) string { return p.uid + "-" + container }

// runContainer creates and starts a container.
func (t *trial) runContainer(p *pod, memory int64, args ...string) (id string) {
	id = t.createContainer(p, memory, args...)
	must(t.runtime.StartContainer(t.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}))
	t.did(p, id, started)
	return id
}

// runToEnd runs a container and returns the first status that shows its end.
func (t *trial) runToEnd(p *pod, memory int64, args ...string) (st *runtimeapi.ContainerStatus) {
	id := t.runContainer(p, memory, args...)
	if !until(t.ctx, time.Minute, 5*time.Millisecond, func() bool {
		st = must(t.status(t.ctx, id))
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}) {
		check(errors.New("a container does not end"))
	}
	t.did(p, id, stopped)
	return st
}

func (n *node) status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := n.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return resp.GetStatus(), err
}

// removeContainer removes a container. That may be refused between the end of a process and EXITED.
func (t *trial) removeContainer(p *pod, id string) {
	var refused error
	until(t.ctx, t.opts.CallTimeout, 20*time.Millisecond, func() bool {
		_, refused = t.runtime.RemoveContainer(t.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return refused == nil
	})
	check(refused)
	t.did(p, id, deleted)
}

// removePod stops and removes a pod whose containers are gone.
func (t *trial) removePod(p *pod) {
	check(t.removeSandbox(t.ctx, p.id))
	t.did(p, p.id, stopped, deleted)
}
