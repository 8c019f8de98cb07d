// Package lookup says which pod and container a container id, a process or a cgroup
// belongs to.
//
// Pipeline.Lookup and Client.Lookup answer a [Query] with a [Container]. A process is found by the
// cgroup that /proc names, a cgroup by its id. The directory of a container's cgroup is named
// after the container, by every runtime and both cgroup drivers (such as
// cri-containerd-ID.scope): nothing else is read from a path, and nothing that a runtime does
// not promise is asked for.
package lookup

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var (
	// ErrNoContainer is returned for what belongs to no container of this node: a process of
	// the host, a cgroup without a container, or an id that the runtime does not list.
	ErrNoContainer = errors.New("no container of this node")
	// ErrNotYet is returned for a container that is not known yet. It is known a moment
	// after the runtime lists it, once its pod is inspected; see Query.Wait. If the inspection
	// fails or takes longer than a second, what the list says is known.
	ErrNotYet = errors.New("the container is not known yet")
)

// KeepRemoved is how long a removed container can be looked up; at most 1024 are kept.
const KeepRemoved = 5 * time.Minute

// Query says what to look up. Exactly one of Container, PID and Cgroup is set.
type Query struct {
	// Container is the id of a container or a pod sandbox, or its first digits if no other id
	// begins with them. It may have a scheme, as in the status of a pod (containerd://ID), or be
	// the name of a cgroup (cri-containerd-ID.scope).
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
	// ContainerStatus is the status of the container. Of a sandbox it has the id, the pod's name, the
	// attempt, the state, the time of its creation, the labels and the annotations. Of a container
	// whose inspection fails or hangs it has the id, the name, the attempt, the state and the time
	// of its creation. A container that was removed has exited: if FinishedAt is zero, its end was not seen and it has no exit code.
	pleg.ContainerStatus
	// Sandbox is true if it is a pod sandbox.
	Sandbox bool

	PodUID       pleg.PodUID
	PodName      string
	PodNamespace string
	// PodLabels and PodAnnotations come from the pod's newest sandbox. There are no annotations while
	// the inspection fails or hangs. The annotations are
	// the pod's own and those of the kubelet, such as kubernetes.io/config.source.
	PodLabels      map[string]string
	PodAnnotations map[string]string

	// RemovedAt is when the pipeline learned that the container is gone; zero while it exists.
	RemovedAt time.Time
	// CgroupPath is the cgroup below the root of its hierarchy: that of the process or with the
	// id that was asked for, which may be inside the container's, or the container's. It is
	// empty if the query has only a container's id and not WithPath.
	CgroupPath string
}

// Check returns an error that says what is wrong with the query, or nil. It wraps
// [pleg.ErrInvalidOption].
func (q Query) Check() error {
	set := 0
	for _, is := range []bool{q.Container != "", q.PID != 0, q.Cgroup != 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("look up: %w: set exactly one of Container, PID and Cgroup", pleg.ErrInvalidOption)
	case q.PID < 0 || q.PID > math.MaxInt32:
		return fmt.Errorf("look up: %w: PID must be positive and below 2^31, got %d", pleg.ErrInvalidOption, q.PID)
	case q.Wait < 0:
		return fmt.Errorf("look up: %w: Wait must not be negative, got %v", pleg.ErrInvalidOption, q.Wait)
	}
	return nil
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
