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
	"text/template"
)

// crio is the engine of the labs that run CRI-O.
type crio struct {
	events bool // "enable_pod_events"
}

func (crio) tools() []string { return []string{"conmon", "skopeo", "gcc", "pkg-config"} }

// crioTags leave out what needs C libraries, except libseccomp.
const crioTags = "containers_image_openpgp exclude_graphdriver_btrfs btrfs_noversion exclude_graphdriver_devicemapper libdm_no_deferred_remove seccomp"

func (crio) programs(ctx context.Context, module, cache string) (string, error) {
	return buildPinned(ctx, pinned{
		dir: filepath.Join(module, "crio"), module: "github.com/cri-o/cri-o", name: "cri-o", commands: []string{"cmd/crio"},
		env: []string{"CGO_ENABLED=1"}, tags: crioTags,
	}, cache)
}

// crioConfig keeps everything that CRI-O writes inside the lab's folder. Each
// monitor of a container is in the cgroup of its pod, so that the lab finds it.
var crioConfig = template.Must(template.New("config").Parse(`[crio]
  root = '{{.Dir}}/root'
  runroot = '{{.Dir}}/state'
  storage_driver = 'overlay'
  log_dir = '{{.Dir}}/logs'
  version_file = '{{.Dir}}/version'
  version_file_persist = '{{.Dir}}/version.persist'
  clean_shutdown_file = '{{.Dir}}/clean.shutdown'
  internal_wipe = false
[crio.api]
  listen = '{{.Dir}}/runtime.sock'
  stream_address = '127.0.0.1'
  stream_port = '0'
[crio.runtime]
  default_runtime = 'runc'
  cgroup_manager = 'cgroupfs'
  conmon_cgroup = 'pod'
  apparmor_profile = 'unconfined'
  namespaces_dir = '{{.Dir}}/ns'
  container_exits_dir = '{{.Dir}}/exits'
  container_attach_socket_dir = '{{.Dir}}/s'
  hooks_dir = []
  pinns_path = '{{.Own}}/pinns'
  enable_pod_events = {{.Events}}
  [crio.runtime.runtimes.runc]
    runtime_path = '{{.Dir}}/runc.sh'
    runtime_root = '{{.Dir}}/runc'
    monitor_path = '{{.Conmon}}'
    monitor_cgroup = 'pod'
[crio.image]
  pause_image = '{{.Image}}'
  pause_command = '/pod pause'
  signature_policy = '{{.Dir}}/policy.json'
  signature_policy_dir = '{{.Dir}}/policies'
[crio.network]
  network_dir = '{{.Dir}}/cni'
  plugin_dirs = ['{{.Dir}}/plugins']
[crio.nri]
  enable_nri = false
`))

// runcScript is runc without the limits of huge pages that a kubelet asks for. CRI-O
// passes them on if the kernel has the controller, and runc fails if it is not mounted.
// containerd has a setting for that.
const runcScript = `#!/bin/sh
for arg; do
	[ "$last" != --bundle ] || sed -i -z 's/"hugepageLimits": *\[[^]]*\]/"hugepageLimits":[]/' "$arg/config.json"
	last=$arg
done
exec %s "$@"
`

// storageConfig is what skopeo must know to write into the images of the daemon.
var storageConfig = template.Must(template.New("storage").Parse(`[storage]
driver = 'overlay'
graphroot = '{{.Dir}}/root'
runroot = '{{.Dir}}/state'
`))

// policy accepts the lab's image, which nobody has signed.
const policy = `{"default":[{"type":"insecureAcceptAnything"}]}`

func (e crio) configure(b binaries, p place) error {
	runc, runcErr := exec.LookPath("runc")
	conmon, err := exec.LookPath("conmon")
	if err := errors.Join(runcErr, err); err != nil {
		return err
	}
	data := map[string]any{"Dir": p.dir, "Image": Image, "Own": b.own, "Events": e.events, "Conmon": conmon}
	var config, storage bytes.Buffer
	if err := errors.Join(crioConfig.Execute(&config, data), storageConfig.Execute(&storage, data)); err != nil {
		return fmt.Errorf("CRI-O config: %w", err)
	}
	return errors.Join(
		os.WriteFile(p.config(), config.Bytes(), 0o600),
		os.WriteFile(p.storage(), storage.Bytes(), 0o600),
		os.WriteFile(p.policy(), []byte(policy), 0o600),
		os.WriteFile(filepath.Join(p.dir, "runc.sh"), fmt.Appendf(nil, runcScript, runc), 0o700),
	)
}

func (p place) storage() string { return filepath.Join(p.dir, "storage.conf") }
func (p place) policy() string  { return filepath.Join(p.dir, "policy.json") }

func (crio) daemon(b binaries, p place) (command, env []string) {
	return []string{filepath.Join(b.runtime, "crio"), "--config", p.config(), "--config-dir", ""},
		[]string{"CONTAINERS_STORAGE_CONF=" + p.storage()}
}

func (crio) load(ctx context.Context, _ binaries, p place, archive string) error {
	_, err := run(ctx, "", []string{"CONTAINERS_STORAGE_CONF=" + p.storage()}, "skopeo", "--policy", p.policy(), "--tmpdir", p.dir,
		"copy", "--quiet", "docker-archive:"+archive, "containers-storage:"+Image)
	return err
}

func (crio) cgroup(id string) string { return "crio-" + id }

// stopped: StopPodSandbox stops the containers with a grace period.
func (crio) stopped() end { return end{0, "Completed"} }

// unwatched: the container's monitor keeps its exit code.
func (crio) unwatched() end { return end{137, "Error"} }
