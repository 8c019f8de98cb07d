package soak

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Node is a container runtime whose pods change and whose true state is known.
type Node interface {
	// Name is the kind of runtime.
	Name() string
	// Endpoint is the address of its CRI socket.
	Endpoint() string
	// Churn changes pods, and breaks the runtime now and then, until ctx ends. It
	// returns nil once no change is under way and the runtime works. It reports each
	// action by name when it is done; the name of a fault begins with "fault: ".
	Churn(ctx context.Context, report func(action string)) error
	// Truth returns the state of all pods. It is called while they rest.
	Truth(ctx context.Context) (Truth, error)
}

// What a node knows about its pods.
type (
	// Truth is the state of all pods of a node.
	Truth = kit.Truth
	// Pod is the state of one pod.
	Pod = kit.Pod
	// Container is the state of a container or a sandbox.
	Container = kit.Container
)

// settleTimeout is how long agents and subscribers may take to know the truth.
const settleTimeout = 45 * time.Second
