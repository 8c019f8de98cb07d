// Package endpoint finds the socket of the container runtime as crictl does, so
// that a node with crictl needs no further configuration: a flag, the environment,
// crictl's configuration file, and then the well-known sockets.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// crictl reads these too.
const (
	EnvEndpoint   = "CONTAINER_RUNTIME_ENDPOINT"
	EnvConfig     = "CRI_CONFIG_FILE"
	DefaultConfig = "/etc/crictl.yaml"
)

// WellKnown returns the endpoints that are tried in this order if none is given: crictl's, and the
// endpoint of k3s and RKE2.
func WellKnown() []string {
	return []string{
		"unix:///run/containerd/containerd.sock",
		"unix:///run/crio/crio.sock",
		"unix:///var/run/cri-dockerd.sock",
		"unix:///run/k3s/containerd/containerd.sock",
	}
}

// Resolver finds an endpoint. All fields except Flag and Config are required.
type Resolver struct {
	// Flag is the endpoint given on the command line, or empty.
	Flag string
	// Config is the configuration file given on the command line, or empty.
	Config string
	// Getenv returns the value of an environment variable, or "".
	Getenv func(string) string
	// DefaultConfig is the configuration file that is read if no other is named. It
	// may be missing.
	DefaultConfig string
	// WellKnown are the endpoints that are tried last.
	WellKnown []string
}

// Endpoint is the address of a runtime.
type Endpoint struct {
	// Address is unix:///path or an absolute path, as it was given, or
	// replay:file.
	Address string
	// Source says where the address comes from, for messages:
	// "--runtime-endpoint", "/etc/crictl.yaml".
	Source string
	// Report, if not nil, adds the problems of a recorded node.
	Report func(*pleg.Report)
}

// ReplayScheme is the prefix of the address of a recording.
const ReplayScheme = "replay:"

// Recording returns the file of an endpoint that is a recording, which may be
// empty; ok is false if it is a runtime.
func (e Endpoint) Recording() (file string, ok bool) {
	return strings.CutPrefix(e.Address, ReplayScheme)
}

// ErrNone is returned when nothing names an endpoint and no runtime is at a well-known socket.
var ErrNone = errors.New("no container runtime found")

// Resolve returns the first endpoint that is named, without checking it. If none is named, it
// returns the first well-known socket whose runtime answers, otherwise the first whose runtime may
// exist but does not answer, otherwise a socket that this process may not open. The error wraps
// [ErrNone] and lists what was tried, or it names a configuration file that cannot be used.
func (r Resolver) Resolve(ctx context.Context) (Endpoint, error) {
	if r.Flag != "" {
		return Endpoint{Address: r.Flag, Source: "--runtime-endpoint"}, nil
	}
	if address := r.Getenv(EnvEndpoint); address != "" {
		return Endpoint{Address: address, Source: EnvEndpoint}, nil
	}
	file, must := r.configFile()
	address, err := readConfig(file, must)
	if err != nil {
		return Endpoint{}, err
	}
	if address != "" {
		return Endpoint{Address: address, Source: file}, nil
	}
	return r.firstWellKnown(ctx)
}

// configFile returns the file to read, and whether it must exist.
func (r Resolver) configFile() (string, bool) {
	if r.Config != "" {
		return r.Config, true
	}
	if file := r.Getenv(EnvConfig); file != "" {
		return file, true
	}
	return r.DefaultConfig, false
}

// checkTimeout is the time in which a runtime must answer to be preferred to a runtime on a later
// socket.
const checkTimeout = time.Second

// firstWellKnown asks each socket for a runtime: containerd with its CRI plugin disabled, as
// Docker installs it, may be beside the runtime of k3s.
func (r Resolver) firstWellKnown(ctx context.Context) (Endpoint, error) {
	var tried strings.Builder
	var silent, closed string
	for _, address := range r.WellKnown {
		err := check(ctx, address)
		if err == nil {
			return Endpoint{Address: address, Source: "well-known socket"}, nil
		}
		if ctx.Err() != nil {
			return Endpoint{}, fmt.Errorf("find a container runtime: %w", context.Cause(ctx))
		}
		reason := err.Error()
		if failed, ok := errors.AsType[*cri.ConnectError](err); ok {
			reason = failed.Endpoint + ": " + failed.Reason
			switch failed.Problem {
			case cri.NoAnswer, cri.Failing:
				silent = cmp.Or(silent, address)
			case cri.NoPermission:
				closed = cmp.Or(closed, address)
			}
		}
		fmt.Fprintf(&tried, "\n  %s", reason)
	}
	if address := cmp.Or(silent, closed); address != "" {
		return Endpoint{Address: address, Source: "well-known socket"}, nil
	}
	return Endpoint{}, fmt.Errorf("%w at the well-known sockets:%s", ErrNone, tried.String())
}

// check returns an error if no runtime answers at an address.
func check(ctx context.Context, address string) error {
	client, err := cri.New(address, cri.Options{ConnectTimeout: checkTimeout})
	if err != nil {
		return err
	}
	_, err = client.Check(ctx)
	return errors.Join(err, client.Close())
}

// readConfig returns the runtime endpoint in a configuration file of crictl, or ""
// if the file names none. If must is false, the file may be missing.
func readConfig(file string, must bool) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	var config struct {
		RuntimeEndpoint string `yaml:"runtime-endpoint"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("read configuration %s: %w", file, err)
	}
	return config.RuntimeEndpoint, nil
}
