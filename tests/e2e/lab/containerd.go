//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"text/template"
)

// containerd is the engine of the labs that run containerd.
type containerd struct {
	old    bool   // containerd 1
	module string // the folder in tests/e2e that pins it; empty for Debian's package
	path   string // its Go module
}

func (containerd) tools() []string { return nil }

func (e containerd) programs(ctx context.Context, module, cache string) (string, error) {
	if e.module == "" {
		return debianPackage(ctx, cache, "containerd")
	}
	return buildPinned(ctx, pinned{
		dir: filepath.Join(module, e.module), module: e.path, name: "containerd",
		commands: []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
		version:  e.path + "/version.Version", env: []string{"CGO_ENABLED=0"},
	}, cache)
}

// containerdConfig keeps everything that containerd writes inside the lab's folder,
// except that the shims of containerd 1 have their sockets in /run/containerd/s.
// Without restrict_oom_score_adj, runc fails on a machine that does not grant
// CAP_SYS_RESOURCE, because the kernel refuses the sandbox's oom_score_adj.
var containerdConfig = template.Must(template.New("config").Parse(`version = {{if .Old}}2{{else}}3{{end}}
root = '{{.Dir}}/root'
state = '{{.Dir}}/state'

[grpc]
  address = '{{.Dir}}/runtime.sock'
[ttrpc]
  address = '{{.Dir}}/runtime.sock.ttrpc'

{{$plugin := "io.containerd.cri.v1.runtime"}}
{{if .Old}}
{{$plugin = "io.containerd.grpc.v1.cri"}}
{{else}}
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{{.Image}}'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.Dir}}/s'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
{{end}}
[plugins.'{{$plugin}}']
  {{if .Old}}sandbox_image = '{{.Image}}'{{end}}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'{{$plugin}}'.cni]
    {{if .Old}}bin_dir = '{{.Dir}}/plugins'{{else}}bin_dirs = ['{{.Dir}}/plugins']{{end}}
    {{if not .Old}}use_internal_loopback = true{{end}}
    conf_dir = '{{.Dir}}/cni'
  [plugins.'{{$plugin}}'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'{{$plugin}}'.containerd.runtimes.runc.options]
      Root = '{{.Dir}}/runc'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{.Dir}}/opt'
`))

func (e containerd) configure(_ binaries, p place) error {
	var config bytes.Buffer
	if err := containerdConfig.Execute(&config, map[string]any{"Dir": p.dir, "Image": Image, "Old": e.old}); err != nil {
		return fmt.Errorf("containerd config: %w", err)
	}
	return os.WriteFile(p.config(), config.Bytes(), 0o600)
}

func (e containerd) daemon(b binaries, p place) (command, env []string) {
	// containerd finds its shim in PATH.
	return []string{filepath.Join(b.runtime, "containerd"), "--config", p.config()}, []string{"PATH=" + b.runtime + ":" + os.Getenv("PATH")}
}

// load pins the image if possible, so that it is not garbage collected.
func (e containerd) load(ctx context.Context, b binaries, p place, archive string) error {
	args := []string{"-a", p.socket(), "-n", "k8s.io", "images", "import"}
	if !e.old { // containerd 1 cannot pin it here
		args = append(args, "--label", "io.cri-containerd.pinned=pinned")
	}
	_, err := run(ctx, "", nil, filepath.Join(b.runtime, "ctr"), append(args, archive)...)
	return err
}

func (containerd) cgroup(id string) string { return id }

// stopped: StopPodSandbox kills the containers.
func (containerd) stopped() end { return end{137, "Error"} }

func (containerd) unwatched() end { return end{255, "Unknown"} }

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
	version := found[1]
	root := filepath.Join(cache, "debian-"+version)
	return filepath.Join(root, "usr", "bin"), fill(root, func(tmp string) error {
		// apt drops its privileges to a user that may not write to this folder.
		if _, err := run(ctx, tmp, nil, "apt-get", "-o", "APT::Sandbox::User=root", "download", name+"="+version); err != nil {
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
