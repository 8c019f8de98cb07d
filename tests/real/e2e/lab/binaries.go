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

// binaries are the programs a lab runs.
type binaries struct {
	runtime string // the folder of the runtime and its programs
	own     string // the folder of podimage, which is in the pod image
}

// provide returns the programs of a lab. It builds or downloads those that are not in the cache.
// Other processes that need the same programs wait meanwhile.
func provide(ctx context.Context, e engine) (binaries, error) {
	e2e, err := moduleDir(ctx)
	if err != nil {
		return binaries{}, err
	}
	cache := filepath.Join(e2e, ".bin")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("make binary cache: %w", err)
	}
	dir := ""
	if e.debian != "" {
		dir, err = debianPackage(ctx, cache, e.debian)
	} else {
		dir, err = e.module.build(ctx, e2e, cache)
	}
	if err != nil {
		return binaries{}, err
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"), syscall.LOCK_EX)
	if err != nil {
		return binaries{}, err
	}
	defer unlock()
	_, err = run(ctx, e2e, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", cache+"/", "./podimage")
	return binaries{runtime: dir, own: cache}, err
}

// moduleDir returns the folder of the modules that pin the runtimes, from any package of
// the module tests/real.
func moduleDir(ctx context.Context) (string, error) {
	out, err := run(ctx, "", nil, "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(out), "e2e")
	if _, err := os.Stat(filepath.Join(dir, "containerd", "go.mod")); err != nil {
		return "", fmt.Errorf("find tests/real/e2e: the working directory must be inside the module tests/real: %w", err)
	}
	return dir, nil
}

// module is a runtime whose version is in a go.mod.
type module struct {
	folder   string // in tests/real/e2e, with the go.mod
	path     string
	name     string
	commands []string // folders in the module
	version  string   // a variable that gets the version; empty if there is none
	env      string
	tags     string
	inC      string // a folder in the module with the sources of a program in C
}

// build builds the commands into a folder of the cache, unless it exists.
func (m module) build(ctx context.Context, e2e, cache string) (string, error) {
	folder := filepath.Join(e2e, m.folder)
	version, err := run(ctx, folder, nil, "go", "list", "-m", "-f", "{{.Version}}", m.path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, m.name+"-"+version)
	return dir, fill(dir, func(tmp string) error {
		flags := "-s -w"
		if m.version != "" {
			flags += " -X " + m.version + "=" + version
		}
		args := []string{"build", "-trimpath", "-tags", m.tags, "-ldflags", flags, "-o", tmp + "/"}
		for _, command := range m.commands {
			args = append(args, m.path+"/"+command)
		}
		if _, err := run(ctx, folder, []string{m.env}, "go", args...); err != nil || m.inC == "" {
			return err
		}
		sources, err := run(ctx, folder, nil, "go", "list", "-m", "-f", "{{.Dir}}", m.path)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(sources, m.inC, "src", "*.c"))
		if err != nil {
			return err
		}
		_, err = run(ctx, tmp, nil, "gcc", append([]string{"-Os", "-o", filepath.Join(tmp, m.inC)}, files...)...)
		return err
	})
}

// debianPackage unpacks a package of Debian without installing it.
func debianPackage(ctx context.Context, cache, name string) (dir string, err error) {
	control, err := run(ctx, "", nil, "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^Version: (\S+)`).FindStringSubmatch(control)
	if found == nil {
		return "", errors.New("apt has no package " + name)
	}
	root := filepath.Join(cache, "debian-"+found[1])
	return filepath.Join(root, "usr", "bin"), fill(root, func(tmp string) error {
		// apt drops its privileges to a user that may not write to this folder.
		if _, err := run(ctx, tmp, nil, "apt-get", "-o", "APT::Sandbox::User=root", "download", name+"="+found[1]); err != nil {
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
	unlock, err := lockFile(dir+".lock", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
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
