//go:build linux

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerSpec describes a container.
type ContainerSpec struct {
	Name string
	// Attempt is the number of earlier containers with this name.
	Attempt uint32
	Program Program
	// MemoryLimit is in bytes. If zero, there is none.
	MemoryLimit int64
}

// Container is a container of the lab.
type Container struct {
	Pod     *Pod
	ID      string
	Name    string
	Attempt uint32

	want end
}

func (c *Container) expectEnd(e end) { c.want = e }

func (c *Container) entry(step Step, began time.Time) Entry {
	return Entry{
		Step: step, PodUID: c.Pod.UID, PodName: c.Pod.Name, PodNamespace: c.Pod.Namespace,
		ContainerID: c.ID, ContainerName: c.Name, Attempt: c.Attempt, Began: began,
	}
}

// RunContainer creates and starts a container.
func (l *Lab) RunContainer(ctx context.Context, p *Pod, spec ContainerSpec) (*Container, error) {
	c, err := l.CreateContainer(ctx, p, spec)
	if err != nil {
		return nil, err
	}
	return c, l.StartContainer(ctx, c)
}

// CreateContainer creates a container and does not start it.
func (l *Lab) CreateContainer(ctx context.Context, p *Pod, spec ContainerSpec) (*Container, error) {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: spec.Name, Attempt: spec.Attempt},
		Image:    &runtimeapi.ImageSpec{Image: Image, UserSpecifiedImage: Image},
		Command:  spec.Program.command,
		Args:     spec.Program.args,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: spec.MemoryLimit},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}
	if !p.foreign {
		config.Labels = map[string]string{
			"io.kubernetes.container.name": spec.Name,
			"io.kubernetes.pod.name":       p.Name,
			"io.kubernetes.pod.namespace":  p.Namespace,
			"io.kubernetes.pod.uid":        p.UID,
		}
	}
	began := time.Now()
	request := &runtimeapi.CreateContainerRequest{PodSandboxId: p.SandboxID, Config: config, SandboxConfig: p.config}
	resp, err := l.runtime.CreateContainer(ctx, request)
	for err != nil && l.removeOrphan(err) {
		resp, err = l.runtime.CreateContainer(ctx, request)
	}
	if err != nil {
		return nil, fmt.Errorf("create container %s/%s: %w", p.Name, spec.Name, err)
	}
	c := &Container{
		Pod: p, ID: resp.GetContainerId(), Name: spec.Name, Attempt: spec.Attempt,
		want: spec.Program.end,
	}
	p.mu.Lock()
	p.containers = append(p.containers, c)
	p.mu.Unlock()
	l.history.add(c.entry(Created, began))
	return c, nil
}

// StartContainer starts a created container and returns once its program handles
// signals.
func (l *Lab) StartContainer(ctx context.Context, c *Container) error {
	began := time.Now()
	if _, err := l.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID}); err != nil {
		return fmt.Errorf("start container %s/%s: %w", c.Pod.Name, c.Name, err)
	}
	l.history.add(c.entry(Started, began))
	return poll(ctx, fmt.Sprintf("the program of %s/%s", c.Pod.Name, c.Name), func() (bool, error) {
		for _, pid := range l.pids(c.ID) {
			name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err == nil && string(name) != "ready\n" {
				return false, nil
			}
		}
		return true, nil // ready, or already ended
	})
}

// FailStart starts a container whose program is missing, and returns once the runtime reports
// its end.
func (l *Lab) FailStart(ctx context.Context, c *Container) error {
	began := time.Now()
	if _, err := l.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID}); err == nil {
		return fmt.Errorf("start container %s/%s: it started", c.Pod.Name, c.Name)
	}
	return l.awaitDied(ctx, c, began)
}

// Trigger makes the container's program end in its way, and returns once the
// runtime reports the end.
func (l *Lab) Trigger(ctx context.Context, c *Container) error {
	began := time.Now()
	if err := l.TriggerProcess(c); err != nil {
		return err
	}
	return l.awaitDied(ctx, c, began)
}

// TriggerProcess is [Lab.Trigger] without a call of the runtime, which may hang.
// [Lab.AwaitDied] must follow, to add the end to the history.
func (l *Lab) TriggerProcess(c *Container) error {
	for _, pid := range l.pids(c.ID) {
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			return fmt.Errorf("trigger %s/%s: %w", c.Pod.Name, c.Name, err)
		}
	}
	if l.forgetsEnd() {
		c.expectEnd(forgotten)
	}
	return nil
}

// Kill kills the container's process without the runtime, and returns once the
// runtime reports the end.
func (l *Lab) Kill(ctx context.Context, c *Container) error {
	began := time.Now()
	if err := l.KillProcess(ctx, c); err != nil {
		return err
	}
	return l.awaitDied(ctx, c, began)
}

// KillProcess kills the container's process and returns when it is dead. It does
// not call the runtime, which may be down. [Lab.AwaitDied] must follow, to add the
// end to the history. If containerd was down, it reports exit code 255, Unknown.
func (l *Lab) KillProcess(ctx context.Context, c *Container) error {
	if err := l.killCgroup(ctx, c.ID); err != nil {
		return err
	}
	switch {
	case l.daemon.Alive() != nil:
		c.expectEnd(l.engine.unwatched)
	case l.forgetsEnd():
		c.expectEnd(forgotten)
	default:
		c.expectEnd(end{137, "Error"})
	}
	return nil
}

// StopContainer stops the container as the kubelet does: its program exits with
// code 0 on SIGTERM.
func (l *Lab) StopContainer(ctx context.Context, c *Container) error {
	began := time.Now()
	_, err := l.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 10})
	if err != nil {
		return fmt.Errorf("stop container %s/%s: %w", c.Pod.Name, c.Name, err)
	}
	if l.history.Last(c.ID) != Started {
		return nil
	}
	c.expectEnd(end{0, "Completed"})
	return l.awaitDied(ctx, c, began)
}

// RemoveContainer removes a container that is dead or was never started.
func (l *Lab) RemoveContainer(ctx context.Context, c *Container) error {
	began := time.Now()
	if _, err := l.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID}); err != nil {
		return fmt.Errorf("remove container %s/%s: %w", c.Pod.Name, c.Name, err)
	}
	l.removeFromPod(c)
	l.history.add(c.entry(Removed, began))
	return nil
}

// AwaitDied returns once the runtime reports that the container ended by itself or
// by [Lab.KillProcess], with the expected exit code.
func (l *Lab) AwaitDied(ctx context.Context, c *Container) error {
	return l.awaitDied(ctx, c, time.Now())
}

func (l *Lab) awaitDied(ctx context.Context, c *Container, began time.Time) error {
	var status *runtimeapi.ContainerStatus
	err := poll(ctx, fmt.Sprintf("the end of %s/%s", c.Pod.Name, c.Name), func() (bool, error) {
		resp, err := l.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		status = resp.GetStatus()
		return status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, err
	})
	if err != nil {
		return err
	}
	e := c.entry(Died, began)
	e.ExitCode, e.Reason = c.want.code, c.want.reason
	l.history.add(e)
	if got := (end{status.GetExitCode(), status.GetReason()}); got != c.want {
		return fmt.Errorf("end of %s/%s: got %d %s, want %d %s", c.Pod.Name, c.Name, got.code, got.reason, c.want.code, c.want.reason)
	}
	return nil
}

// killCgroup kills the processes of a container or sandbox and waits for their
// end.
func (l *Lab) killCgroup(ctx context.Context, id string) error {
	if len(l.pids(id)) == 0 {
		return fmt.Errorf("kill %s: it has no process", id)
	}
	return poll(ctx, "the end of the processes of "+id, func() (bool, error) {
		pids := l.pids(id)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0, nil
	})
}

// Processes returns the processes of a container.
func (l *Lab) Processes(c *Container) []int { return l.pids(c.ID) }

// pids returns the processes of a container or sandbox in its cgroup. With cgroup v1 it searches
// all hierarchies.
func (l *Lab) pids(id string) []int {
	var pids []int
	cgroup := filepath.Join(l.place.name(), l.engine.cgroup+id)
	for _, root := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		dirs, _ := filepath.Glob(filepath.Join(root, cgroup))
		for _, dir := range dirs {
			pids = append(pids, cgroupProcs(dir)...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func (l *Lab) removeFromPod(c *Container) {
	c.Pod.mu.Lock()
	defer c.Pod.mu.Unlock()
	c.Pod.containers = slices.DeleteFunc(c.Pod.containers, func(other *Container) bool { return other == c })
}

// Program is the program of a container, with the way in which it ends by itself. On SIGTERM, which
// [Lab.StopContainer] sends, it exits with code 0.
type Program struct {
	command []string // instead of the image's, if any
	args    []string
	end     end
}

// Missing is not in the image, so its start fails.
func Missing() Program { return Program{command: []string{"/missing"}, end: end{128, "StartError"}} }

// Pause runs until it is stopped.
func Pause() Program { return Program{args: []string{"pause"}, end: end{0, "Completed"}} }

// Exit runs until [Lab.Trigger], and then exits with this code.
func Exit(code uint8) Program {
	return Program{args: []string{"exit", strconv.Itoa(int(code))}, end: end{int32(code), exitReason(code)}}
}

// ExitAfter exits with this code by itself, this long after its start.
func ExitAfter(code uint8, d time.Duration) Program {
	return Program{args: []string{"exit", strconv.Itoa(int(code)), d.String()}, end: end{int32(code), exitReason(code)}}
}

// EatMemory runs until [Lab.Trigger], and then until the kernel kills it. Its
// container needs a memory limit.
func EatMemory() Program { return Program{args: []string{"oom"}, end: end{137, "OOMKilled"}} }

// exitReason returns the reason that every runtime reports for an exit code.
func exitReason(code uint8) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}
