//go:build linux

package lab

import (
	"cmp"
	"context"
	"fmt"
	"os"
)

// Runtime names a container runtime, in the version that a lab runs.
type Runtime string

// The runtimes of a lab.
const (
	// Containerd is the containerd 2 that tests/e2e/containerd pins.
	Containerd Runtime = "containerd"
	// Containerd17 is the containerd 1.7 that tests/e2e/containerd17 pins. It has CRI
	// events for one client, and no streaming lists.
	Containerd17 Runtime = "containerd-1.7"
	// Containerd16 is the containerd of this machine's Debian release, which was 1.6
	// in Debian 12. It has neither CRI events nor streaming lists.
	Containerd16 Runtime = "containerd-1.6"
	// CRIO is the CRI-O that tests/e2e/crio pins, with pod events.
	CRIO Runtime = "cri-o"
	// CRIOWithoutEvents is the same CRI-O with its default settings, which switch pod
	// events off.
	CRIOWithoutEvents Runtime = "cri-o-without-events"
)

// RuntimeEnv is the environment variable that names the default runtime of labs.
const RuntimeEnv = "PLEG_E2E_RUNTIME"

// DefaultRuntime returns the runtime of a lab whose [Options] name none.
func DefaultRuntime() Runtime { return cmp.Or(Runtime(os.Getenv(RuntimeEnv)), Containerd) }

// Traits are what a test must know about a runtime.
type Traits struct {
	// Events: the runtime has CRI events.
	Events bool
	// AllEvents: an event announces every change. CRI-O does not announce the
	// removal of a sandbox, and may lose other events.
	AllEvents bool
	// EventsToOne: of several clients each event reaches only one.
	EventsToOne bool
	// DropsEvents: while a client does not read, no client gets events, and those that
	// do not fit into the runtime's buffer are dropped ([Lab.DroppedEvents]).
	DropsEvents bool
	// ForgetsEnds: a container that ended while the disk was full is reported as
	// running until the runtime starts again.
	ForgetsEnds bool
	// SandboxProcess: a sandbox has a process, which [Lab.KillSandbox] kills.
	SandboxProcess bool
	// Shims: each pod has a shim that [Lab.KillShim] and [Lab.FreezeShim] can stop.
	// The same runtimes read the network's configuration when it changes, for
	// [Lab.BreakNetwork] and [Lab.HangTeardown].
	Shims bool
}

// Traits returns what a test must know about a runtime.
func (r Runtime) Traits() Traits {
	switch r {
	case Containerd17:
		return Traits{Events: true, AllEvents: true, EventsToOne: true, SandboxProcess: true, Shims: true}
	case Containerd16:
		return Traits{SandboxProcess: true, Shims: true}
	case CRIO:
		return Traits{Events: true, DropsEvents: true, ForgetsEnds: true}
	case CRIOWithoutEvents:
		return Traits{ForgetsEnds: true}
	default:
		return Traits{Events: true, AllEvents: true, SandboxProcess: true, Shims: true}
	}
}

// end is how a container ends.
type end struct {
	code   int32
	reason string
}

// engine is what the lab does in another way for each runtime.
type engine interface {
	// tools are the programs that must be installed.
	tools() []string
	// programs builds or downloads the runtime into the folder cache unless it is
	// there, and returns the folder of the programs. module is that of the e2e module.
	programs(ctx context.Context, module, cache string) (dir string, err error)
	// configure writes the files that the daemon reads.
	configure(b binaries, p place) error
	// daemon returns the command line of the daemon, and additions to its environment.
	daemon(b binaries, p place) (command, env []string)
	// load gives the running daemon an image archive.
	load(ctx context.Context, b binaries, p place, archive string) error
	// cgroup returns the name of the cgroup of a container or sandbox.
	cgroup(id string) string
	// stopped is how a container ends whose sandbox is stopped, unwatched how one ends
	// that is killed while the daemon does not run.
	stopped() end
	unwatched() end
}

func newEngine(r Runtime) (engine, error) {
	switch r {
	case Containerd:
		return containerd{module: "containerd", path: "github.com/containerd/containerd/v2"}, nil
	case Containerd17:
		return containerd{old: true, module: "containerd17", path: "github.com/containerd/containerd"}, nil
	case Containerd16:
		return containerd{old: true}, nil
	case CRIO:
		return crio{events: true}, nil
	case CRIOWithoutEvents:
		return crio{}, nil
	default:
		return nil, fmt.Errorf("there is no runtime %q: want one of %q", r,
			[]Runtime{Containerd, Containerd17, Containerd16, CRIO, CRIOWithoutEvents})
	}
}
