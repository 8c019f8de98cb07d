//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// imageName is the image of all sandboxes and containers. It is in no registry.
const imageName = "localhost/pleg-lab/pod:1"

// writeImage writes an image archive with one layer that has one program, in the
// format of docker save, which needs no index.
func writeImage(path, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	layer, err := archive(file{name: "pod", mode: 0o755, data: binary})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pod"}, "Cmd": []string{"pause"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return fmt.Errorf("encode image config: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{imageName}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("encode image manifest: %w", err)
	}
	image, err := archive(
		file{name: "manifest.json", mode: 0o644, data: manifest},
		file{name: "config.json", mode: 0o644, data: config},
		file{name: "layer.tar", mode: 0o644, data: layer},
	)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

type file struct {
	name string
	mode int64
	data []byte
}

// archive returns a tar of files. It is reproducible.
func archive(files ...file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("close archive: %w", err)
	}
	return buf.Bytes(), nil
}
