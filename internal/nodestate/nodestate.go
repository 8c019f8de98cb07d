// Package nodestate contains the facts about a runtime and its node that are not in lists and
// inspections: processes, filesystems, and when troubles began. It travels in the field Details of
// [pleg.Report] and [pleg.Status], so that the library need not name it.
package nodestate

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// State contains the known facts. Unknown facts are zero.
type State struct {
	// Process is the process of the runtime. In a [pleg.Status], it is set only if a list failed or is in
	// progress, or an inspection is overdue.
	Process *Process
	// Stuck are the pods whose shim does not run, the longest first.
	Stuck []Stuck
	// Unread are the clients of the runtime that do not read, those that are stopped first.
	Unread []Unread
	// Disk is the runtime's filesystem if it is almost full.
	Disk *Disk
	// Since is only in a [pleg.Status].
	Since Since
}

// Of returns the state in the field Details of a report or a status; a zero state if there is none.
func Of(details any) State {
	s, _ := details.(State)
	return s
}

// Change changes the state in a field Details.
func Change(details *any, change func(*State)) {
	s := Of(*details)
	change(&s)
	*details = s
}

// Since contains the times at which troubles began. A time is zero while its trouble is absent.
type Since struct {
	// Unhealthy is the time at which Healthy became false, Degraded when something began to work
	// only by a fallback, Slow when lists or inspections became slow.
	Unhealthy, Degraded, Slow time.Time
}

// Process is a process of the node.
type Process struct {
	PID int
	// Name is the name of its program, such as containerd.
	Name string
	// State is the kernel's letter for the state, such as T for stopped by a signal and D for
	// waiting in the kernel; empty if the process has ended.
	State string
}

// Stuck is a pod whose changes the runtime does not learn, because the process that watches its
// containers (containerd's shim, CRI-O's conmon) does not run.
type Stuck struct {
	UID       pleg.PodUID
	Namespace string
	Name      string
	// Since is the time at which the pod was first seen stuck.
	Since time.Time
	// Shim is the process that watches the containers; nil if it is not known or has ended.
	Shim *Process
	// Container and ID are the name and id of a container whose process has ended, although the
	// runtime calls it running; empty if there is no such container.
	Container string
	ID        pleg.ContainerID
}

// Unread is a client that does not read from the runtime. A runtime that sends events to the client
// may wait for it.
type Unread struct {
	// Since is the time at which it was first seen not to read.
	Since time.Time
	// Client is its process; nil if it is not known.
	Client *Process
	// Bytes wait for it, of the kernel's memory.
	Bytes int
}

// Disk is a filesystem that is almost full.
type Disk struct {
	// Since is the time at which it was first seen almost full.
	Since time.Time
	// Path is the mount point, according to the runtime.
	Path string
	// Used and Inodes are the percentages of its bytes and inodes that are in use.
	Used, Inodes float64
}
