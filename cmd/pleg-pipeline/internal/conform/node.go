package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// Namespace is the Kubernetes namespace of all pods that this package runs.
const Namespace = "pleg-conform"

// runLabel marks the pods of one run. Its value begins with the process id.
const runLabel = "pleg-pipeline.conform/run"

// largeAnswer is how much this client reads, in bytes. It must not be the limit.
const largeAnswer = 256 << 20

// node runs pods on the runtime and removes them.
type node struct {
	opts    Options
	run     string
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	program program
	pods    atomic.Int64

	mu      sync.Mutex
	clients []*cri.Client // of the watchers
}

func newNode(o Options) (*node, error) {
	program, err := newProgram()
	if err != nil {
		return nil, err
	}
	client, err := dial(o.Endpoint)
	if err != nil {
		return nil, errors.Join(err, program.remove())
	}
	return &node{
		opts: o, run: fmt.Sprintf("%d-%s", os.Getpid(), rand.Text()), client: client, program: program,
		runtime: runtimeapi.NewRuntimeServiceClient(client.Conn()),
	}, nil
}

// close removes the pods and closes the connections. It returns the pods that are
// left, and err if that is not nil.
func (n *node) close(ctx context.Context, err error) (leftover []string, _ error) {
	leftover = n.removePods(ctx)
	if len(leftover) > 0 && err == nil {
		err = fmt.Errorf("could not remove %d pods of namespace %s", len(leftover), Namespace)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range append(n.clients, n.client) {
		_ = c.Close()
	}
	return leftover, errors.Join(err, n.program.remove())
}

// removePods removes every pod of this run, and those of runs that were killed. It
// tries again until ctx ends, because a runtime may be busy.
func (n *node) removePods(ctx context.Context) (leftover []string) {
	for {
		resp, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.namespace": Namespace}},
		})
		if err == nil {
			leftover = nil
			for _, s := range resp.GetItems() {
				if run := s.GetLabels()[runLabel]; run != n.run && runs(run) {
					continue
				}
				if err := n.removeSandbox(ctx, s.GetId()); err != nil {
					leftover = append(leftover, s.GetId())
				}
			}
			if len(leftover) == 0 {
				return nil
			}
		}
		if sleep(ctx, 200*time.Millisecond) != nil {
			return leftover
		}
	}
}

// runs reports whether the process of another run is alive.
func runs(run string) bool {
	text, _, _ := strings.Cut(run, "-")
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && syscall.Kill(pid, 0) == nil
}

func (n *node) removeSandbox(ctx context.Context, id string) error {
	_, stopErr := n.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	_, err := n.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return errors.Join(stopErr, err)
}

func (n *node) checkImage(ctx context.Context) error {
	images := runtimeapi.NewImageServiceClient(n.client.Conn())
	resp, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: n.opts.Image}})
	if err != nil {
		return fmt.Errorf("look for the image %s: %w", n.opts.Image, err)
	}
	if resp.GetImage() == nil {
		return fmt.Errorf("the runtime has no image %s: pull it first", n.opts.Image)
	}
	return nil
}

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

// call returns a context for one call to the runtime.
func (n *node) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, n.opts.CallTimeout)
}

func (n *node) runPod(ctx context.Context, annotations map[string]string) (*pod, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	// A runtime may finish a cancelled call, and then make a pod that nobody removes.
	ctx, cancel := n.call(context.WithoutCancel(ctx))
	defer cancel()
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
		return nil, fmt.Errorf("run pod: %w", err)
	}
	p.id = resp.GetPodSandboxId()
	p.did(p.id, created, started)
	return p, nil
}

// createContainer creates a container that runs this program with arguments.
func (n *node) createContainer(ctx context.Context, p *pod, memory int64, args ...string) (id string, err error) {
	ctx, cancel := n.call(ctx)
	defer cancel()
	name := fmt.Sprintf("c%d", len(p.steps))
	resp, err := n.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: n.opts.Image, UserSpecifiedImage: n.opts.Image},
			Command:  n.program.command,
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
		return "", fmt.Errorf("create container: %w", err)
	}
	p.did(resp.GetContainerId(), created)
	return resp.GetContainerId(), nil
}

func (n *node) start(ctx context.Context, p *pod, id string) error {
	ctx, cancel := n.call(ctx)
	defer cancel()
	if _, err := n.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	p.did(id, started)
	return nil
}

// runContainer creates and starts a container.
func (n *node) runContainer(ctx context.Context, p *pod, memory int64, args ...string) (id string, err error) {
	if id, err = n.createContainer(ctx, p, memory, args...); err != nil {
		return "", err
	}
	return id, n.start(ctx, p, id)
}

// awaitExit asks for the status until it is EXITED, and returns the first such one.
func (n *node) awaitExit(ctx context.Context, p *pod, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		st, err := n.status(ctx, id)
		if err != nil {
			return nil, err
		}
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			p.did(id, stopped)
			return st, nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for the end of a container: %w", err)
		}
	}
}

func (n *node) status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := n.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("container status: %w", err)
	}
	return resp.GetStatus(), nil
}

func (n *node) removeContainer(ctx context.Context, p *pod, id string) error {
	ctx, cancel := n.call(ctx)
	defer cancel()
	for {
		_, err := n.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		if err == nil {
			p.did(id, deleted)
			return nil
		}
		// Between the end of a process and EXITED a removal may be refused.
		if sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("remove container: %w", err)
		}
	}
}

// removePod stops and removes a pod whose containers are gone.
func (n *node) removePod(ctx context.Context, p *pod) error {
	ctx, cancel := n.call(ctx)
	defer cancel()
	if _, err := n.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return fmt.Errorf("stop pod: %w", err)
	}
	if _, err := n.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return fmt.Errorf("remove pod: %w", err)
	}
	p.did(p.id, stopped, deleted)
	return nil
}

// sleep returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// exitedAt returns when a container wrote that it is about to exit.
func (p program) exitedAt(name string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
}

func count(n int, of int, what string) string { return fmt.Sprintf("%d of %d %s", n, of, what) }

// quantiles describes durations.
func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, max %v of %d", round(d[len(d)/2]), round(d[len(d)-1]), len(d))
}
