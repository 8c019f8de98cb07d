//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

const containerdModule = "github.com/containerd/containerd/v2"

// binaries are the programs a lab runs.
type binaries struct {
	dir string // containerd, containerd-shim-runc-v2 and ctr
	pod string // the program in the pod image
}

// provide returns the programs of a lab. It builds or downloads those that are
// not in the cache; other processes wait meanwhile.
func provide(ctx context.Context, debian bool) (binaries, error) {
	module, err := moduleDir(ctx)
	if err != nil {
		return binaries{}, err
	}
	cache := filepath.Join(module, ".bin")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("make binary cache: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"), syscall.LOCK_EX)
	if err != nil {
		return binaries{}, err
	}
	defer unlock()

	var b binaries
	if debian {
		b, err = provideDebian(ctx, cache)
	} else {
		b, err = providePinned(ctx, filepath.Join(module, "containerd"), cache)
	}
	if err != nil {
		return binaries{}, err
	}
	b.pod = filepath.Join(cache, "pod")
	_, err = run(ctx, module, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.pod, "./podimage")
	return b, err
}

// moduleDir returns the folder of the e2e module, from any package in it.
func moduleDir(ctx context.Context) (string, error) {
	out, err := run(ctx, "", nil, "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(out)
	if _, err := os.Stat(filepath.Join(dir, "containerd", "go.mod")); err != nil {
		return "", fmt.Errorf("find the e2e module: the working directory must be inside it: %w", err)
	}
	return dir, nil
}

// providePinned builds the version that the go.mod of module names.
func providePinned(ctx context.Context, module, cache string) (binaries, error) {
	version, err := run(ctx, module, nil, "go", "list", "-m", "-f", "{{.Version}}", containerdModule)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: filepath.Join(cache, "containerd-"+version)}
	return b, fill(b.dir, func(tmp string) error {
		flags := "-s -w -X " + containerdModule + "/version.Version=" + version
		_, err := run(ctx, module, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", flags, "-o", tmp+"/",
			containerdModule+"/cmd/containerd", containerdModule+"/cmd/containerd-shim-runc-v2", containerdModule+"/cmd/ctr")
		return err
	})
}

// provideDebian unpacks Debian's package without installing it.
func provideDebian(ctx context.Context, cache string) (binaries, error) {
	control, err := run(ctx, "", nil, "apt-cache", "show", "--no-all-versions", "containerd")
	if err != nil {
		return binaries{}, err
	}
	found := regexp.MustCompile(`(?m)^Version: (\S+)`).FindStringSubmatch(control)
	if found == nil {
		return binaries{}, errors.New("find Debian's containerd: apt has no such package")
	}
	version := found[1]
	root := filepath.Join(cache, "debian-"+version)
	b := binaries{dir: filepath.Join(root, "usr", "bin")}
	return b, fill(root, func(tmp string) error {
		// apt drops its privileges to a user that may not write to this folder.
		if _, err := run(ctx, tmp, nil, "apt-get", "-o", "APT::Sandbox::User=root", "download", "containerd="+version); err != nil {
			return err
		}
		packages, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
		if err != nil || len(packages) != 1 {
			return fmt.Errorf("find the downloaded package: %d files: %w", len(packages), err)
		}
		_, err = run(ctx, tmp, nil, "dpkg", "-x", packages[0], tmp)
		return err
	})
}

// fill makes dir with build unless it exists. A failed build leaves no dir.
func fill(dir string, build func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := build(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// run runs a program in dir and returns its output without the last line break.
// An error includes its stderr.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
