//go:build linux

package lab

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
)

// Runtime names a container runtime, in the version that a lab runs.
type Runtime string

// The runtimes of a lab.
const (
	// Containerd is the containerd 2 that tests/real/e2e/containerd pins.
	Containerd Runtime = "containerd"
	// Containerd17 is the containerd 1.7 that tests/real/e2e/containerd17 pins. It sends each CRI
	// event to one client.
	Containerd17 Runtime = "containerd-1.7"
	// Containerd16 is the containerd of this machine's Debian release, which was 1.6
	// in Debian 12. It sends no CRI events.
	Containerd16 Runtime = "containerd-1.6"
	// CRIO is the CRI-O that tests/real/e2e/crio pins, with pod events.
	CRIO Runtime = "cri-o"
	// CRIOWithoutEvents is the same CRI-O with its default settings, which switch pod
	// events off.
	CRIOWithoutEvents Runtime = "cri-o-without-events"
)

// RuntimeEnv is the environment variable that names the runtime of labs, [Containerd] if it is empty.
const RuntimeEnv = "PLEG_E2E_RUNTIME"

// DefaultRuntime returns the runtime of labs.
func DefaultRuntime() Runtime { return cmp.Or(Runtime(os.Getenv(RuntimeEnv)), Containerd) }

// Traits are properties of a runtime that a test must know.
type Traits struct {
	// Events: the runtime sends CRI events.
	Events bool
	// AllEvents: an event announces every change. CRI-O does not announce the
	// removal of a sandbox, and may lose other events.
	AllEvents bool
	// EventsToOne: each event reaches only one of several clients.
	EventsToOne bool
	// ForgetsEnds: a container that ended while the disk was full is reported as
	// running until the runtime starts again.
	ForgetsEnds bool
	// FailsAtStart: a container whose program is missing is created, and fails to start.
	FailsAtStart bool
	// SandboxProcess: each sandbox is a process, which [Lab.KillSandbox] kills.
	SandboxProcess bool
	// Shims: a shim belongs to each pod. [Lab.KillShim] and [Lab.FreezeShim] can stop it. The same
	// runtimes read the network's configuration when it changes, for [Lab.BreakNetwork] and
	// [Lab.HangTeardown].
	Shims bool
}

// Traits returns the traits of a runtime.
func (r Runtime) Traits() Traits { return engines[r].traits }

// end is how a container ends.
type end struct {
	code   int32
	reason string
}

// engine is how the lab runs a runtime.
type engine struct {
	traits Traits
	// module is the folder of tests/real/e2e that pins the runtime. If empty, the runtime is
	// Debian's package of this name.
	module module
	debian string
	// tools are the programs that must be installed.
	tools []string
	// files is the folder in files/ with the templates of the daemon's configuration; old is for
	// containerd 1.
	files string
	old   bool
	// daemon returns the command line of the daemon, load the command line of the program that
	// gives it an image archive, and env the environment variables of both.
	daemon, env func(b binaries, p place) []string
	load        func(b binaries, p place, archive string) []string
	// cgroup is the text before the id of a container in the name of its cgroup.
	cgroup string
	// stopped is the end of a container whose sandbox is stopped, unwatched that of a container
	// that is killed while the daemon does not run.
	stopped, unwatched end
}

// Sandboxes of containerd and CRI-O differ in who watches the containers: containerd kills the
// containers of a stopped sandbox, and does not know the exit code of a container that ended while
// it was down. CRI-O stops them with a grace period, and a monitor keeps the exit code.
var engines = map[Runtime]engine{
	Containerd: containerd(engine{
		traits: Traits{Events: true, AllEvents: true, FailsAtStart: true, SandboxProcess: true, Shims: true},
		module: containerdModule("containerd", "github.com/containerd/containerd/v2"), load: ctrPinned,
	}),
	Containerd17: containerd(engine{
		traits: Traits{Events: true, AllEvents: true, EventsToOne: true, FailsAtStart: true, SandboxProcess: true, Shims: true},
		module: containerdModule("containerd17", "github.com/containerd/containerd"), load: ctr, old: true,
	}),
	Containerd16: containerd(engine{
		traits: Traits{FailsAtStart: true, SandboxProcess: true, Shims: true}, debian: "containerd", load: ctr, old: true,
	}),
	CRIO:              crio(Traits{Events: true, ForgetsEnds: true}),
	CRIOWithoutEvents: crio(Traits{ForgetsEnds: true}),
}

func containerd(e engine) engine {
	e.files, e.stopped, e.unwatched = "containerd", end{137, "Error"}, end{255, "Unknown"}
	e.daemon = func(b binaries, p place) []string {
		return []string{filepath.Join(b.runtime, "containerd"), "--config", p.file("runtime.conf")}
	}
	// containerd finds its shim in PATH.
	e.env = func(b binaries, _ place) []string { return []string{"PATH=" + b.runtime + ":" + os.Getenv("PATH")} }
	return e
}

func containerdModule(folder, path string) module {
	return module{
		folder: folder, path: path, name: "containerd", commands: []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
		version: path + "/version.Version", env: "CGO_ENABLED=0",
	}
}

func ctr(b binaries, p place, archive string) []string {
	return []string{filepath.Join(b.runtime, "ctr"), "-a", p.socket(), "-n", "k8s.io", "images", "import", archive}
}

// ctrPinned pins the image, so that it is not garbage collected. containerd 1 cannot do it
// here.
func ctrPinned(b binaries, p place, archive string) []string {
	return slices.Insert(ctr(b, p, archive), 7, "--label", "io.cri-containerd.pinned=pinned")
}

// crioTags leave out features that need C libraries, except libseccomp.
const crioTags = "containers_image_openpgp exclude_graphdriver_btrfs btrfs_noversion exclude_graphdriver_devicemapper libdm_no_deferred_remove seccomp"

func crio(t Traits) engine {
	return engine{
		traits: t, files: "cri-o", cgroup: "crio-", stopped: end{0, "Completed"}, unwatched: end{137, "Error"},
		tools: []string{"conmon", "skopeo", "gcc", "pkg-config"},
		module: module{
			folder: "crio", path: "github.com/cri-o/cri-o", name: "crio", commands: []string{"cmd/crio"},
			env: "CGO_ENABLED=1", tags: crioTags, inC: "pinns",
		},
		daemon: func(b binaries, p place) []string {
			return []string{filepath.Join(b.runtime, "crio"), "--config", p.file("runtime.conf"), "--config-dir", ""}
		},
		load: func(_ binaries, p place, archive string) []string {
			return []string{
				"skopeo", "--policy", p.file("policy.json"), "--tmpdir", p.dir, "copy", "--quiet",
				"docker-archive:" + archive, "containers-storage:" + Image,
			}
		},
		env: func(_ binaries, p place) []string {
			return []string{"CONTAINERS_STORAGE_CONF=" + p.file("storage.conf")}
		},
	}
}
