//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing/fstest"
	"text/template"
)

// templates are the files that the daemons and the network plugins read.
//
//go:embed files
var templates embed.FS

// writeFiles fills in the templates of a folder in files/ and writes them into a folder of
// the lab.
func writeFiles(e engine, b binaries, p place, from, to string) error {
	all, err := template.ParseFS(templates, "files/"+from+"/*")
	if err != nil {
		return err
	}
	conmon, _ := exec.LookPath("conmon") // only CRI-O needs it
	data := map[string]any{
		"Dir": p.dir, "Runtime": b.runtime, "CNI": cniBinDir, "Image": Image, "Conmon": conmon, "Old": e.old, "Events": e.traits.Events,
	}
	for _, t := range all.Templates() {
		var text bytes.Buffer
		if err := t.Execute(&text, data); err != nil {
			return fmt.Errorf("write %s: %w", t.Name(), err)
		}
		if err := os.WriteFile(filepath.Join(to, t.Name()), text.Bytes(), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// The network plugins of the lab, beside Debian's. They are in files/plugins.
const (
	brokenPlugin = "broken"
	slowPlugin   = "slow"
)

// writePlugins makes the folder of CNI plugins.
func writePlugins(e engine, b binaries, p place) error {
	if err := os.Mkdir(p.plugins(), 0o755); err != nil {
		return err
	}
	for _, name := range cniPlugins {
		if err := os.Symlink(filepath.Join(cniBinDir, name), filepath.Join(p.plugins(), name)); err != nil {
			return err
		}
	}
	return writeFiles(e, b, p, "plugins", p.plugins())
}

// writeNetwork configures a bridge without a gateway: pods get addresses, and the
// host's routes do not change.
func writeNetwork(p place, subnet netip.Prefix) error {
	if err := os.MkdirAll(p.cni(), 0o755); err != nil {
		return err
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

// writePlugin replaces the network by a network with a single plugin. It renames a file within the
// folder, because containerd reads the folder again only after that.
func writePlugin(p place, plugin map[string]any) error {
	conf, err := json.MarshalIndent(map[string]any{
		"cniVersion":   "0.4.0",
		"name":         p.name(),
		"disableCheck": true, // a check fails while other pods change the bridge
		"plugins":      []any{plugin},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode network: %w", err)
	}
	conflist := p.conflist()
	tmp := conflist + ".new"
	if err := os.WriteFile(tmp, conf, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, conflist)
}

// Image is the image of all sandboxes and containers. It is in no registry.
const Image = "localhost/pleg-lab/pod:1"

// WriteImage writes an image archive with one layer that contains one program, in the format of
// docker save, which needs no index.
func WriteImage(path, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	layer, layerErr := archive(fstest.MapFS{"pod": {Data: binary, Mode: 0o755}})
	config, configErr := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pod"}, "Cmd": []string{"pause"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest, manifestErr := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"},
	}})
	image, err := archive(fstest.MapFS{
		"manifest.json": {Data: manifest, Mode: 0o644}, "config.json": {Data: config, Mode: 0o644}, "layer.tar": {Data: layer, Mode: 0o644},
	})
	if err := errors.Join(layerErr, configErr, manifestErr, err); err != nil {
		return fmt.Errorf("make the pod image: %w", err)
	}
	return os.WriteFile(path, image, 0o600)
}

// archive returns a tar of files. It is reproducible.
func archive(files fstest.MapFS) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.AddFS(files)
	return buf.Bytes(), errors.Join(err, w.Close())
}

// KubeletConfig is the configuration of every kubelet in a test, without the runtime, addresses and
// folders. It needs no cgroup of its own, no certificate and no space on a disk.
const KubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: "1Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%", imagefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
`
