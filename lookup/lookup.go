// Package lookup says which pod and container a container id, a process or a cgroup
// belongs to.
//
// A process is found by the cgroup that /proc names, a cgroup by its id. The directory of a
// container's cgroup is named after the container, by every runtime and both cgroup drivers
// (such as cri-containerd-ID.scope): nothing else is read from a path, and nothing that a
// runtime does not promise is asked for.
//
// Usually an [Index] is that of a pipeline: see Pipeline.Lookup.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var (
	// ErrNoContainer is returned for what belongs to no container of this node: a process of
	// the host, a cgroup without a container, or an id that the runtime does not list.
	ErrNoContainer = errors.New("no container of this node")
	// ErrNotYet is returned for a container that is not known yet. It is known a moment
	// after the runtime lists it, once its pod is inspected; see Query.Wait.
	ErrNotYet = errors.New("the container is not known yet")
)

// Query says what to look up. Exactly one of Container, PID and Cgroup is set.
type Query struct {
	// Container is the full id of a container or a pod sandbox.
	Container pleg.ContainerID
	// PID is a process, in the pid namespace of this process.
	PID int
	// Cgroup is the id of a cgroup v2, as bpf_get_current_cgroup_id returns it. It is the
	// inode of the cgroup's directory.
	Cgroup uint64
	// Wait is how long to wait for a container that is not known yet. If zero, the error is
	// [ErrNotYet] at once.
	Wait time.Duration
	// WithPath asks for the path of the cgroup although only Container is set. The cgroups of
	// the node are searched then, which takes milliseconds.
	WithPath bool
}

// Container is the answer: a container or a pod sandbox, and its pod. It is read-only.
type Container struct {
	ID   pleg.ContainerID `json:"id"`
	Name string           `json:"name"` // the pod's name for a sandbox
	// Attempt is the number of containers of this name, or of sandboxes, that the pod had
	// before.
	Attempt uint32 `json:"attempt"`
	Sandbox bool   `json:"sandbox"`

	PodUID       pleg.PodUID `json:"podUID"`
	PodName      string      `json:"podName"`
	PodNamespace string      `json:"podNamespace"`
	// PodLabels and PodAnnotations are those of the pod's newest sandbox: annotations are the
	// pod's own and those of the kubelet, such as kubernetes.io/config.source.
	PodLabels      map[string]string `json:"podLabels,omitempty"`
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`

	State pleg.State `json:"-"`
	// Image is the image as the pod names it, ImageRef its digest in the runtime.
	Image    string `json:"image,omitempty"`
	ImageRef string `json:"imageRef,omitempty"`
	LogPath  string `json:"logPath,omitempty"`
	// ExitCode and Reason are set once the container has exited.
	ExitCode   *int32    `json:"exitCode,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// RemovedAt is when the pipeline learned that the container is gone; zero while it exists.
	RemovedAt time.Time `json:"removedAt,omitzero"`
	// CgroupPath is the container's cgroup below the root of its hierarchy; empty if it was not
	// asked for.
	CgroupPath string `json:"cgroupPath,omitempty"`
}

// check returns an error that says what is wrong with the query.
func (q Query) check() error {
	set := 0
	for _, is := range []bool{q.Container != "", q.PID != 0, q.Cgroup != 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return errors.New("lookup: set exactly one of Container, PID and Cgroup")
	case q.PID < 0:
		return fmt.Errorf("lookup: PID must be positive, got %d", q.PID)
	case q.Wait < 0:
		return fmt.Errorf("lookup: Wait must not be negative, got %v", q.Wait)
	}
	return nil
}

// Lookup answers a query from an index. The error wraps [ErrNoContainer] or [ErrNotYet], is
// [pleg.ErrStopped], or is the cause of ctx.
func (h Host) Lookup(ctx context.Context, x *Index, q Query) (Container, error) {
	if err := q.check(); err != nil {
		return Container{}, err
	}
	c, err := h.lookup(ctx, x, q)
	if err != nil {
		return Container{}, fmt.Errorf("look up %s: %w", q, err)
	}
	return c, nil
}

func (h Host) lookup(ctx context.Context, x *Index, q Query) (c Container, err error) {
	ids := []pleg.ContainerID{q.Container}
	path := ""
	switch {
	case q.PID != 0:
		path, err = h.pathOfProcess(q.PID)
	case q.Cgroup != 0:
		path, err = h.pathOfCgroup(q.Cgroup)
	}
	if err != nil {
		return Container{}, err
	}
	if q.Container == "" {
		if ids = idsIn(path); len(ids) == 0 {
			return Container{}, ErrNoContainer
		}
	}
	c, ok, _ := x.get(ids)
	switch {
	case !ok && q.Wait == 0:
		err = ErrNotYet
	case !ok:
		c, err = x.await(ctx, ids, q.Wait)
	}
	if err != nil {
		return Container{}, err
	}
	if c.CgroupPath = path; path == "" && q.WithPath {
		c.CgroupPath = h.pathOfContainer(c.ID)
	}
	return c, nil
}

// String returns the query as people read it, such as "process 4711".
func (q Query) String() string {
	switch {
	case q.Container != "":
		return "container " + string(q.Container)
	case q.PID != 0:
		return fmt.Sprintf("process %d", q.PID)
	}
	return fmt.Sprintf("cgroup %d", q.Cgroup)
}
