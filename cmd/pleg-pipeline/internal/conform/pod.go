package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

func (p *pod) did(id string, kinds ...runtimeapi.ContainerEventType) {
	for _, kind := range kinds {
		p.steps = append(p.steps, step{id, id == p.id, kind})
	}
}

func (n *node) runPod(ctx context.Context, annotations map[string]string) (*pod, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	// A runtime may finish a cancelled call, and then make a pod that nobody removes.
	ctx = context.WithoutCancel(ctx)
	name := fmt.Sprintf("pod-%d", n.pods.Add(1))
	p := &pod{uid: rand.Text()}
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: p.uid, Namespace: Namespace},
		Labels: map[string]string{
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": Namespace, "io.kubernetes.pod.uid": p.uid, runLabel: n.run,
		},
		Annotations: annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: n.opts.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	resp, err := n.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, err
	}
	p.id = resp.GetPodSandboxId()
	p.did(p.id, created, started)
	return p, nil
}

// createContainer creates a container that runs this program with arguments.
func (n *node) createContainer(ctx context.Context, p *pod, memory int64, args ...string) (id string, err error) {
	name := fmt.Sprintf("c%d", len(p.steps))
	resp, err := n.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: n.opts.Image, UserSpecifiedImage: n.opts.Image},
			Command:  []string{mountPath + "/program"},
			Args:     append([]string{ProgramCommand}, args...),
			Mounts:   []*runtimeapi.Mount{{ContainerPath: mountPath, HostPath: n.program.dir}},
			Labels: map[string]string{
				"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": p.uid,
				"io.kubernetes.pod.name": p.config.GetMetadata().GetName(), "io.kubernetes.pod.namespace": Namespace,
			},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
			},
		},
	})
	if err != nil {
		return "", err
	}
	p.did(resp.GetContainerId(), created)
	return resp.GetContainerId(), nil
}

// runContainer creates and starts a container.
func (n *node) runContainer(ctx context.Context, p *pod, memory int64, args ...string) (id string, err error) {
	if id, err = n.createContainer(ctx, p, memory, args...); err != nil {
		return "", err
	}
	if _, err := n.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return "", err
	}
	p.did(id, started)
	return id, nil
}

// runToEnd runs a container and returns the first status that shows its end.
func (n *node) runToEnd(ctx context.Context, p *pod, memory int64, args ...string) (*runtimeapi.ContainerStatus, error) {
	id, err := n.runContainer(ctx, p, memory, args...)
	if err != nil {
		return nil, err
	}
	return n.awaitExit(ctx, p, id)
}

// awaitExit asks for the status until it is EXITED, and returns the first such one.
func (n *node) awaitExit(ctx context.Context, p *pod, id string) (*runtimeapi.ContainerStatus, error) {
	var st *runtimeapi.ContainerStatus
	err := until(ctx, time.Minute, 5*time.Millisecond, func() (ok bool, err error) {
		st, err = n.status(ctx, id)
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the end of a container: %w", err)
	}
	p.did(id, stopped)
	return st, nil
}

func (n *node) status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := n.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return resp.GetStatus(), err
}

func (n *node) removeContainer(ctx context.Context, p *pod, id string) error {
	var refused error // as it may be between the end of a process and EXITED
	err := until(ctx, n.opts.CallTimeout, 20*time.Millisecond, func() (bool, error) {
		_, refused = n.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return refused == nil, nil
	})
	if err != nil {
		return errors.Join(refused, err)
	}
	p.did(id, deleted)
	return nil
}

// removePod stops and removes a pod whose containers are gone.
func (n *node) removePod(ctx context.Context, p *pod) error {
	if err := n.removeSandbox(ctx, p.id); err != nil {
		return err
	}
	p.did(p.id, stopped, deleted)
	return nil
}
