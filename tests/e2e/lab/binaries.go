//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// binaries are the programs a lab runs.
type binaries struct {
	runtime string // the folder of the runtime and what belongs to it
	own     string // the folder of podimage, which is in the pod image, and of pinns
}

// provide returns the programs of a lab. It builds or downloads those that are
// not in the cache; other processes that need the same wait meanwhile.
func provide(ctx context.Context, e engine) (binaries, error) {
	module, err := moduleDir(ctx)
	if err != nil {
		return binaries{}, err
	}
	cache := filepath.Join(module, ".bin")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("make binary cache: %w", err)
	}
	dir, err := e.programs(ctx, module, cache)
	if err != nil {
		return binaries{}, err
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"), syscall.LOCK_EX)
	if err != nil {
		return binaries{}, err
	}
	defer unlock()
	_, err = run(ctx, module, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", cache+"/", "./podimage", "./pinns")
	return binaries{runtime: dir, own: cache}, err
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

// pinned is a runtime whose version is in a go.mod.
type pinned struct {
	dir      string // has the go.mod
	module   string
	name     string
	commands []string // folders in the module
	version  string   // a variable that gets the version; empty if there is none
	env      []string
	tags     string
}

// buildPinned builds the commands into a folder of the cache, unless it exists.
func buildPinned(ctx context.Context, p pinned, cache string) (string, error) {
	version, err := run(ctx, p.dir, nil, "go", "list", "-m", "-f", "{{.Version}}", p.module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, p.name+"-"+version)
	return dir, fill(dir, func(tmp string) error {
		flags := "-s -w"
		if p.version != "" {
			flags += " -X " + p.version + "=" + version
		}
		args := []string{"build", "-trimpath", "-tags", p.tags, "-ldflags", flags, "-o", tmp + "/"}
		for _, command := range p.commands {
			args = append(args, p.module+"/"+command)
		}
		_, err := run(ctx, p.dir, p.env, "go", args...)
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
