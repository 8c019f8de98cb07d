//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing/fstest"
)

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
		return err
	}
	for _, name := range cniPlugins {
		if err := os.Symlink(filepath.Join(cniBinDir, name), filepath.Join(p.plugins(), name)); err != nil {
			return err
		}
	}
	for name, script := range map[string]string{
		brokenPlugin: brokenScript,
		slowPlugin:   fmt.Sprintf(slowScript, p.dir, filepath.Join(cniBinDir, "bridge")),
	} {
		if err := os.WriteFile(filepath.Join(p.plugins(), name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
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

// writePlugin replaces the network by one with a single plugin. It renames a file
// within the folder, because containerd reads the folder again only after that.
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
	conflist := filepath.Join(p.cni(), "10-lab.conflist")
	tmp := conflist + ".new"
	if err := os.WriteFile(tmp, conf, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, conflist)
}

// Image is the image of all sandboxes and containers. It is in no registry.
const Image = "localhost/pleg-lab/pod:1"

// WriteImage writes an image archive with one layer that has one program, in the
// format of docker save, which needs no index.
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
