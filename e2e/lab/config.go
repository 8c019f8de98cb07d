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
// folder. Without restrict_oom_score_adj runc dies where the machine withholds
// CAP_SYS_RESOURCE: the sandbox's oom_score_adj of -998 is refused.
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
    bin_dirs = ['{{.CNIBinDir}}']
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

// debianConfig is the same for containerd 1.6, which has no setting for its
// shims' sockets: they are in /run/containerd/s.
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
    bin_dir = '{{.CNIBinDir}}'
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
	defer f.Close()
	if err := config.Execute(f, map[string]string{"Dir": p.dir, "Image": imageName, "CNIBinDir": cniBinDir}); err != nil {
		return fmt.Errorf("write containerd config: %w", err)
	}
	return f.Close()
}

// writeNetwork describes a bridge without a gateway: pods get addresses and
// the host's routing stays as it is.
func writeNetwork(p place, subnet netip.Prefix) error {
	conf, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       p.name(),
		"plugins": []any{map[string]any{
			"type":   "bridge",
			"bridge": p.bridge(),
			"ipam":   map[string]any{"type": "host-local", "subnet": subnet.String(), "dataDir": filepath.Join(p.dir, "ipam")},
		}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode network: %w", err)
	}
	if err := os.Mkdir(filepath.Join(p.dir, "cni"), 0o755); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "cni", "10-lab.conflist"), conf, 0o600); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	return nil
}
