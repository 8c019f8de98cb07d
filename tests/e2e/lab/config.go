//go:build linux

package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
)

// containerdConfig keeps everything that containerd writes inside the lab's
// folder. Without restrict_oom_score_adj, runc fails on a machine that does not
// grant CAP_SYS_RESOURCE, because the kernel refuses the sandbox's oom_score_adj.
var containerdConfig = template.Must(template.New("config").Parse(`version = 3
root = '{{.Dir}}/root'
state = '{{.Dir}}/state'

[grpc]
  address = '{{.Dir}}/containerd.sock'
[ttrpc]
  address = '{{.Dir}}/containerd.sock.ttrpc'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{{.Image}}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{{.Dir}}/plugins']
    conf_dir = '{{.Dir}}/cni'
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      Root = '{{.Dir}}/runc'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.Dir}}/s'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{.Dir}}/opt'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
`))

// debianConfig is the same for containerd 1.6. Its shims have their sockets in
// /run/containerd/s, for which there is no setting.
var debianConfig = template.Must(template.New("debian").Parse(`version = 2
root = '{{.Dir}}/root'
state = '{{.Dir}}/state'

[grpc]
  address = '{{.Dir}}/containerd.sock'
[ttrpc]
  address = '{{.Dir}}/containerd.sock.ttrpc'

[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{{.Image}}'
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '{{.Dir}}/plugins'
    conf_dir = '{{.Dir}}/cni'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
      Root = '{{.Dir}}/runc'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{.Dir}}/opt'
`))

func writeConfig(p place, release Release) error {
	config := containerdConfig
	if release == Debian {
		config = debianConfig
	}
	f, err := os.Create(p.config())
	if err != nil {
		return fmt.Errorf("write containerd config: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := config.Execute(f, map[string]string{"Dir": p.dir, "Image": imageName}); err != nil {
		return fmt.Errorf("write containerd config: %w", err)
	}
	return f.Close()
}

// brokenPlugin is a CNI plugin that fails to add and to delete a pod's address.
// containerd 1.6 then lists the sandbox as not ready, because it could not clean
// up; containerd 2 does not list it.
const brokenPlugin = "broken"

const brokenScript = `#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
	echo '{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}'
	exit 0
fi
echo '{"cniVersion":"0.4.0","code":100,"msg":"broken by the lab"}'
exit 1
`

// writePlugins makes the folder of CNI plugins.
func writePlugins(p place) error {
	if err := os.Mkdir(p.plugins(), 0o755); err != nil {
		return fmt.Errorf("write plugins: %w", err)
	}
	for _, name := range cniPlugins {
		if err := os.Symlink(filepath.Join(cniBinDir, name), filepath.Join(p.plugins(), name)); err != nil {
			return fmt.Errorf("write plugins: %w", err)
		}
	}
	for name, script := range map[string]string{
		brokenPlugin: brokenScript,
		slowPlugin:   fmt.Sprintf(slowScript, p.dir, filepath.Join(cniBinDir, "bridge")),
	} {
		if err := os.WriteFile(filepath.Join(p.plugins(), name), []byte(script), 0o755); err != nil {
			return fmt.Errorf("write plugins: %w", err)
		}
	}
	return nil
}

// writeNetwork configures a bridge without a gateway: pods get addresses, and the
// host's routes do not change.
func writeNetwork(p place, subnet netip.Prefix) error {
	if err := os.MkdirAll(p.cni(), 0o755); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	return writePlugin(p, p.bridgePlugin(subnet))
}

func (p place) bridgePlugin(subnet netip.Prefix) map[string]any {
	return map[string]any{
		"type":   "bridge",
		"bridge": p.bridge(),
		"ipam":   map[string]any{"type": "host-local", "subnet": subnet.String(), "dataDir": filepath.Join(p.dir, "ipam")},
	}
}

// writePlugin replaces the network by one with a single plugin. It renames a file
// within the folder, because containerd reads the folder again only after that.
func writePlugin(p place, plugin map[string]any) error {
	conf, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       p.name(),
		"plugins":    []any{plugin},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode network: %w", err)
	}
	conflist := filepath.Join(p.cni(), "10-lab.conflist")
	tmp := conflist + ".new"
	if err := os.WriteFile(tmp, conf, 0o600); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	if err := os.Rename(tmp, conflist); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	return nil
}
