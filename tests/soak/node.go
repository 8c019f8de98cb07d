package soak

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Node is a container runtime whose pods change, and who knows what is true.
type Node interface {
	// Name says what kind of runtime it is.
	Name() string
	// Endpoint is the address of its CRI socket.
	Endpoint() string
	// Churn changes pods, and breaks the runtime now and then, until ctx ends;
	// it returns once no change is under way and the runtime is well, which is
	// no error. What it does it tells by name, once it is done; the name of what
	// breaks it begins with "fault: ".
	Churn(ctx context.Context, tell func(deed string)) error
	// Truth returns how all pods are. It is called while they rest.
	Truth(ctx context.Context) (Truth, error)
}

// Truth is how all pods of a node are.
type Truth map[pleg.PodUID]Pod

// Pod is the truth about one pod.
type Pod struct {
	Namespace, Name string
	// Containers are its containers and its sandboxes.
	Containers map[pleg.ContainerID]Container
}

// Container is the truth about a container or a sandbox.
type Container struct {
	Sandbox bool
	State   pleg.State
	Attempt uint32
	// ExitCode and Reason are those of a container that has exited.
	ExitCode int32
	Reason   string
	// IP is the primary address of a sandbox that is ready, if it has one.
	IP string
}

// A node that needs longer to be seen right than this is seen wrong.
const settleTimeout = 45 * time.Second
