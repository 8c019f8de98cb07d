package main

import (
	"archive/tar"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// TestImageOfPrograms requires that the index has an image with each program, which says what it is and runs without rights.
func TestImageOfPrograms(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "image")
	programs := map[string]string{"amd64": "one", "arm64": "other"}
	args := []string{"-version", "v1.2.3", "-revision", "abc", "-created", "86400", "-out", out}
	for _, arch := range []string{"amd64", "arm64"} {
		requireOK(t, os.WriteFile(filepath.Join(dir, arch), []byte(programs[arch]), 0o600))
		args = append(args, arch+"="+filepath.Join(dir, arch))
	}
	requireOK(t, run(args))
	root, err := layout.ImageIndexFromPath(out)
	requireOK(t, err)
	top, err := root.IndexManifest()
	requireOK(t, err)
	names := map[string]string{"org.opencontainers.image.ref.name": "v1.2.3", "io.containerd.image.name": "localhost/pleg-pipeline:v1.2.3"}
	if len(top.Manifests) != 1 || !maps.Equal(top.Manifests[0].Annotations, names) {
		t.Fatalf("the archive has %+v, want one index with the names %v", top.Manifests, names)
	}
	index, err := root.ImageIndex(top.Manifests[0].Digest)
	requireOK(t, err)
	manifest, err := index.IndexManifest()
	requireOK(t, err)
	const home = "https://github.com/pleg-pipeline/pleg-pipeline"
	labels := map[string]string{
		"org.opencontainers.image.title": "pleg-pipeline", "org.opencontainers.image.description": "Pod lifecycle events of a container runtime",
		"org.opencontainers.image.source": home, "org.opencontainers.image.documentation": home + "/tree/main/docs",
		"org.opencontainers.image.version": "v1.2.3", "org.opencontainers.image.revision": "abc", "org.opencontainers.image.created": "1970-01-02T00:00:00Z",
	}
	want := v1.Config{
		Entrypoint: []string{"/pleg-pipeline"}, Cmd: []string{"run"}, User: "65532:65532", Labels: labels, Env: []string{"PLEG_PIPELINE_WAIT_FOR_RUNTIME=true"},
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		requireOK(t, err)
		config, err := image.ConfigFile()
		requireOK(t, err)
		if config.Architecture != m.Platform.Architecture || config.OS != "linux" || m.Platform.OS != "linux" || config.Created.Unix() != 86400 || !reflect.DeepEqual(config.Config, want) {
			t.Errorf("the image for %s is %+v, want %+v", m.Platform, config, want)
		}
		if has, err := image.Manifest(); err != nil || !maps.Equal(has.Annotations, labels) {
			t.Errorf("the image for %s has the annotations %v, %v", m.Platform, has.Annotations, err)
		}
		layers, err := image.Layers()
		requireOK(t, err)
		content, err := layers[0].Uncompressed()
		requireOK(t, err)
		files := tar.NewReader(content)
		file, err := files.Next()
		requireOK(t, err)
		text, err := io.ReadAll(files)
		requireOK(t, err)
		if file.Name != "pleg-pipeline" || file.Mode != 0o755 || !file.ModTime.Equal(time.Unix(86400, 0)) || string(text) != programs[m.Platform.Architecture] || len(layers) != 1 {
			t.Errorf("the image for %s contains %+v with %q", m.Platform, file, text)
		}
	}
	if len(manifest.Manifests) != 2 {
		t.Errorf("%d images, want 2", len(manifest.Manifests))
	}
}

// TestBadArguments requires that what is missing is named.
func TestBadArguments(t *testing.T) {
	const missing = "-version, -out and at least one ARCHITECTURE=PROGRAM are required"
	for args, want := range map[string]string{
		"-out x amd64=y": missing, "-version v1 amd64=y": missing, "-version v1 -out x": missing,
		"-version v1 -out x amd64":          `"amd64": want ARCHITECTURE=PROGRAM, such as amd64=bin/pleg-pipeline`,
		"-version v1 -out x amd64=/nowhere": "image for amd64: open /nowhere: no such file or directory",
	} {
		if err := run(strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
