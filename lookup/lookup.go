// Package lookup says which pod and container a container id, a process or a cgroup
// belongs to.
//
// Pipeline.Lookup and Client.Lookup answer a [Query] with a [Container]. A process is found by the
// cgroup that /proc names, a cgroup by its id. Every runtime and both cgroup drivers name the
// directory of a container's cgroup after the container, such as cri-containerd-ID.scope. Only
// this id is read from the path.
package lookup

import (
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var (
	// ErrNoContainer is wrapped by the error for a query that matches no container of this node: a
	// process of the host, a cgroup without a container, or, with Query.Wait, an id that the
	// runtime does not list.
	ErrNoContainer = errors.New("no container of this node")
	// ErrNotYet is wrapped by the error for a container that is not known yet. A container is known
	// once its pod has been listed and inspected. If the inspection fails or takes longer than a
	// second, the facts of the list are returned.
	ErrNotYet = errors.New("the container is not known yet")
)

// KeepRemoved is how long a removed container can be looked up, if it is one of the last 1024.
const KeepRemoved = 5 * time.Minute

// Query says what to look up. Exactly one of Container, PID and Cgroup is set.
type Query struct {
	// Container is the id of a container or a pod sandbox, or its first digits if no other id
	// begins with them. It may begin with a scheme, as in the status of a pod (containerd://ID).
	Container pleg.ContainerID
	// PID is a process, in the pid namespace of the process with the pipeline.
	PID int
	// Cgroup is the id of a cgroup v2, as bpf_get_current_cgroup_id returns it. It is the
	// inode of the cgroup's directory.
	Cgroup uint64
	// Wait is how long to wait for a container that is not known yet. If zero, the error is
	// [ErrNotYet] at once.
	Wait time.Duration
}

// Container is the answer: a container or a pod sandbox, and its pod. It is read-only.
type Container struct {
	// ContainerStatus is the status of the container. For a sandbox, it contains ID, Name (the pod's),
	// Attempt, State, CreatedAt, Labels and Annotations. If the first inspection of the container
	// or sandbox fails or hangs, it contains only the first five. A removed container has State exited:
	// if its FinishedAt is zero, its end was not seen, and ExitCode means nothing.
	pleg.ContainerStatus
	// Sandbox is true if the answer is a pod sandbox.
	Sandbox bool

	PodUID       pleg.PodUID
	PodName      string
	PodNamespace string
	// PodLabels and PodAnnotations come from the pod's newest sandbox. The annotations are the
	// pod's own and those of the kubelet, such as kubernetes.io/config.source. There are no
	// annotations if the first inspection of the container or sandbox fails or hangs.
	PodLabels      map[string]string
	PodAnnotations map[string]string

	// RemovedAt is the time at which the pipeline learned that the container is gone; zero while it
	// exists.
	RemovedAt time.Time
	// CgroupPath is a path below the root of the cgroup hierarchy: the cgroup of Query.PID, or with
	// the id Query.Cgroup, which may lie inside the container's cgroup. It is empty for a query by
	// Container.
	CgroupPath string
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
