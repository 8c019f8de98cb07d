// Command release packs the programs of a release into a container image. It needs
// neither a registry nor a container engine.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	program = "/pleg-pipeline"
	source  = "https://github.com/pleg-pipeline/pleg-pipeline"
	// user is the user of the distroless images, which is without rights of its own.
	user = "65532:65532"
)

// options are the parts of an image besides the programs.
type options struct {
	version, revision string
	created           time.Time
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.version, "version", "", "version of the program, the tag of the image")
	flags.StringVar(&o.revision, "revision", "", "commit")
	created := flags.Int64("created", 0, "time of the image in seconds since 1970, the same for each build of a commit")
	out := flags.String("out", "", "folder for the OCI layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.version == "" || *out == "" || flags.NArg() == 0 {
		return errors.New("-version, -out and at least one ARCHITECTURE=PROGRAM are required")
	}
	o.created = time.Unix(*created, 0).UTC()
	index, err := o.index(flags.Args())
	if err != nil {
		return err
	}
	return o.writeLayout(*out, index)
}

// index returns an index with one image for each architecture.
func (o options) index(programs []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		architecture, file, ok := strings.Cut(p, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want ARCHITECTURE=PROGRAM, such as amd64=bin/pleg-pipeline", p)
		}
		image, err := o.image(architecture, file)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	return index, nil
}

func (o options) image(architecture, file string) (v1.Image, error) {
	layer, err := o.layer(file)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: o.created}, CreatedBy: "deploy/release", Comment: "the program",
	}})
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":         "pleg-pipeline",
		"org.opencontainers.image.description":   "Pod lifecycle events of a container runtime",
		"org.opencontainers.image.source":        source,
		"org.opencontainers.image.documentation": source + "/tree/main/docs",
		"org.opencontainers.image.version":       o.version,
		"org.opencontainers.image.revision":      o.revision,
		"org.opencontainers.image.created":       o.created.Format(time.RFC3339),
	}
	config := v1.Config{
		Entrypoint: []string{program}, Cmd: []string{"run"}, User: user, Labels: labels,
		// A node may start the container before the runtime that it watches.
		Env: []string{"PLEG_PIPELINE_WAIT_FOR_RUNTIME=true"},
	}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: architecture, OS: "linux", Created: v1.Time{Time: o.created},
		Config: config,
		RootFS: must(image.ConfigFile()).RootFS, History: must(image.ConfigFile()).History,
	})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
}

// must returns the configuration of an image in memory, which always contains one.
func must(c *v1.ConfigFile, err error) *v1.ConfigFile {
	if err != nil {
		panic(err)
	}
	return c
}

// layer returns a layer with the program alone.
func (o options) layer(file string) (v1.Layer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(program, "/"), Mode: 0o755, Size: int64(len(data)), ModTime: o.created}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// writeLayout writes an index as an OCI layout. "ctr images import" and skopeo read an archive of
// it.
func (o options) writeLayout(dir string, index v1.ImageIndex) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.version, "io.containerd.image.name": "localhost/pleg-pipeline:" + o.version,
	}))
}
