//go:build linux

package lab

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Release names a containerd that the lab can run.
type Release string

const (
	// Pinned is the containerd that e2e/containerd pins; it is built once and
	// kept in e2e/.bin.
	Pinned Release = "pinned"
	// Debian is the containerd of the Debian release of this machine. It is
	// unpacked into e2e/.bin, not installed.
	Debian Release = "debian"
)

// cniBinDir is where Debian's containernetworking-plugins puts them.
const cniBinDir = "/usr/lib/cni"

// cniPlugins are those that a lab uses.
var cniPlugins = []string{"bridge", "host-local", "loopback"}

// Options are the settings of a lab.
type Options struct {
	// Release says which containerd to run. If empty, Pinned.
	Release Release
	// StartTimeout bounds the time from the start of containerd until it
	// answers over CRI; the time to build it is not counted. If zero, 30 s.
	StartTimeout time.Duration
	// StopTimeout bounds the removal of the pods in [Lab.Stop]; what is left
	// then is killed. If zero, 1 min.
	StopTimeout time.Duration
	// DiskSize, in bytes, gives containerd's root and state a disk in memory of
	// that size each, which [Lab.FillDisk] fills. If zero, they are folders.
	DiskSize int64
	// Logger receives the steps of start and stop. If nil, they are discarded.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Release == "" {
		o.Release = Pinned
	}
	if o.Release != Pinned && o.Release != Debian {
		return o, fmt.Errorf("Release %q is neither %q nor %q", o.Release, Pinned, Debian)
	}
	if o.StartTimeout < 0 || o.StopTimeout < 0 {
		return o, fmt.Errorf("StartTimeout %v and StopTimeout %v must not be negative", o.StartTimeout, o.StopTimeout)
	}
	if o.DiskSize < 0 {
		return o, fmt.Errorf("DiskSize %d must not be negative", o.DiskSize)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 30 * time.Second
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Check reports what this machine lacks to run a lab, or nil.
func Check() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the containerd lab needs root: it mounts, makes cgroups and a bridge (uid is %d)", os.Geteuid())
	}
	for _, tool := range []string{"runc", "ip", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the containerd lab needs %s: run e2e/setup.sh: %w", tool, err)
		}
	}
	for _, plugin := range cniPlugins {
		if _, err := os.Stat(filepath.Join(cniBinDir, plugin)); err != nil {
			return fmt.Errorf("the containerd lab needs the CNI plugin %s: run e2e/setup.sh: %w", plugin, err)
		}
	}
	return nil
}
