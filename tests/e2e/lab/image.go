//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing/fstest"
)

// imageName is the image of all sandboxes and containers. It is in no registry.
const imageName = "localhost/pleg-lab/pod:1"

// writeImage writes an image archive with one layer that has one program, in the
// format of docker save, which needs no index.
func writeImage(path, program string) error {
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
		"Config": "config.json", "RepoTags": []string{imageName}, "Layers": []string{"layer.tar"},
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
