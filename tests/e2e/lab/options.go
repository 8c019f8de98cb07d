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
	// Pinned is the containerd that tests/e2e/containerd pins. It is built once and
	// kept in tests/e2e/.bin.
	Pinned Release = "pinned"
	// Debian is the containerd of the Debian release of this machine. It is not
	// installed, but unpacked into tests/e2e/.bin.
	Debian Release = "debian"
)

// cniBinDir is the folder of Debian's package containernetworking-plugins.
const cniBinDir = "/usr/lib/cni"

// cniPlugins are the plugins that a lab uses.
var cniPlugins = []string{"bridge", "host-local", "loopback"}

// Options are the settings of a lab.
type Options struct {
	// Release is the containerd to run. If empty, Pinned.
	Release Release
	// StartTimeout bounds the time from the start of containerd until it answers
	// over CRI. It does not include the time to build it. If zero, 30 s.
	StartTimeout time.Duration
	// StopTimeout bounds the removal of the pods in [Lab.Stop], which then kills the
	// others. If zero, 1 min.
	StopTimeout time.Duration
	// DiskSize is the size in bytes of two file systems in memory for containerd's
	// root and state, which [Lab.FillDisk] fills. If zero, they are folders.
	DiskSize int64
	// Logger logs the start and the stop. If nil, nothing is logged.
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

// Check returns an error if this machine cannot run a lab.
func Check() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the containerd lab needs root to mount and to make cgroups and a bridge (uid is %d)", os.Geteuid())
	}
	for _, tool := range []string{"runc", "ip", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the containerd lab needs %s: run tests/e2e/setup.sh: %w", tool, err)
		}
	}
	for _, plugin := range cniPlugins {
		if _, err := os.Stat(filepath.Join(cniBinDir, plugin)); err != nil {
			return fmt.Errorf("the containerd lab needs the CNI plugin %s: run tests/e2e/setup.sh: %w", plugin, err)
		}
	}
	return nil
}
