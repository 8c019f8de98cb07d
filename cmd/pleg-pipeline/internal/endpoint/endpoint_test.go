package endpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a file and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	kit.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// serving returns the endpoint of a gRPC server, which serves a runtime if that is not nil.
func serving(t *testing.T, of *rawruntime.Runtime) string {
	t.Helper()
	l, path := kit.Socket(t)
	rawruntime.Serve(t, of, l)
	return "unix://" + path
}

// failing is a runtime whose calls fail.
func failing(code codes.Code, message string) *rawruntime.Runtime {
	return &rawruntime.Runtime{Before: func(context.Context, any) error { return status.Error(code, message) }}
}

func TestResolveOrder(t *testing.T) {
	const flag, env, file, other, standard = "unix:///flag", "unix:///env", "unix:///file", "unix:///other", "unix:///standard"
	config := write(t, "crictl.yaml", "timeout: 2\nruntime-endpoint: "+file+"\ndebug: false\n")
	otherConfig := write(t, "other.yaml", "runtime-endpoint: "+other+"\n")
	defaultConfig := write(t, "default.yaml", "runtime-endpoint: "+standard+"\n")
	emptyConfig := write(t, "empty.yaml", "image-endpoint: unix:///image\n")
	const missing = "/nonexistent/crictl.yaml"
	_, quiet := kit.Socket(t)
	dead, first, second := "unix://"+kit.AbandonedSocket(t), serving(t, &rawruntime.Runtime{}), serving(t, &rawruntime.Runtime{})
	docker, silent, bare := serving(t, nil), "unix://"+quiet, serving(t, failing(codes.Unimplemented, "method Version not implemented"))
	starting := serving(t, failing(codes.Unavailable, "server is not initialized yet"))

	for _, test := range []struct {
		name          string
		flag, config  string
		env           map[string]string
		defaultConfig string
		wellKnown     []string
		want          string
		source        string
	}{
		{
			name: "flag beats all", flag: flag, config: config, env: map[string]string{endpoint.EnvEndpoint: env},
			defaultConfig: defaultConfig, wellKnown: []string{first}, want: flag, source: "--runtime-endpoint",
		},
		{
			name: "environment beats files", config: config,
			env:           map[string]string{endpoint.EnvEndpoint: env, endpoint.EnvConfig: otherConfig},
			defaultConfig: defaultConfig, want: env, source: endpoint.EnvEndpoint,
		},
		{
			name: "named file beats the environment's", config: config, env: map[string]string{endpoint.EnvConfig: otherConfig},
			defaultConfig: defaultConfig, want: file, source: config,
		},
		{
			name: "environment's file beats the default one", env: map[string]string{endpoint.EnvConfig: otherConfig},
			defaultConfig: defaultConfig, want: other, source: otherConfig,
		},
		{name: "default file beats sockets", defaultConfig: defaultConfig, wellKnown: []string{first}, want: standard, source: defaultConfig},
		{name: "file without an endpoint", defaultConfig: emptyConfig, wellKnown: []string{first}, want: first, source: "well-known socket"},
		{name: "no file", defaultConfig: missing, wellKnown: []string{first, second}, want: first, source: "well-known socket"},
		{
			name: "sockets that do not accept are passed over", defaultConfig: missing,
			wellKnown: []string{"unix:///nonexistent/s", dead, second}, want: second, source: "well-known socket",
		},
		{
			name: "a server without CRI is passed over", defaultConfig: missing,
			wellKnown: []string{docker, second}, want: second, source: "well-known socket",
		},
		{
			name: "one that answers beats those that do not", defaultConfig: missing,
			wellKnown: []string{silent, starting, docker, second, first}, want: second, source: "well-known socket",
		},
		{
			name: "a runtime that hangs is one", defaultConfig: missing,
			wellKnown: []string{docker, silent, starting}, want: silent, source: "well-known socket",
		},
		{
			name: "a runtime that starts is one", defaultConfig: missing,
			wellKnown: []string{docker, starting}, want: starting, source: "well-known socket",
		},
		{
			name: "a runtime without Version is one", defaultConfig: missing,
			wellKnown: []string{docker, bare}, want: bare, source: "well-known socket",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			got, err := endpoint.Resolver{
				Flag: test.flag, Config: test.config, DefaultConfig: test.defaultConfig, WellKnown: test.wellKnown,
				Getenv: func(name string) string { return test.env[name] },
			}.Resolve(t.Context())
			if want := (endpoint.Endpoint{Address: test.want, Source: test.source}); err != nil || got.Address != want.Address || got.Source != want.Source {
				t.Errorf("Resolve() = %v, %v, want %v", got, err, want)
			}
			if took := time.Since(began); took >= cri.DefaultConnectTimeout {
				t.Errorf("Resolve() took %v, want a second for a runtime that does not answer", took)
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	malformed := write(t, "crictl.yaml", "runtime-endpoint: [unix:///a\n")
	dead, docker := "unix://"+kit.AbandonedSocket(t), serving(t, nil)
	for _, test := range []struct {
		name     string
		resolver endpoint.Resolver
		none     bool
		want     string
	}{
		{"named file is missing", endpoint.Resolver{Config: "/nonexistent/c.yaml"}, false, "read configuration: open /nonexistent/c.yaml: no such file or directory"},
		{
			"the environment's file is missing",
			endpoint.Resolver{Getenv: func(name string) string { return map[string]string{endpoint.EnvConfig: "/nonexistent/e.yaml"}[name] }},
			false,
			"read configuration: open /nonexistent/e.yaml: no such file or directory",
		},
		{"file is not YAML", endpoint.Resolver{Config: malformed}, false, "read configuration " + malformed + ": yaml: line 1: did not find expected ',' or ']'"},
		{"default file cannot be read", endpoint.Resolver{DefaultConfig: "/dev"}, false, "read configuration: read /dev: is a directory"},
		{
			"no socket accepts",
			endpoint.Resolver{DefaultConfig: "/nonexistent/c", WellKnown: []string{"unix:///nonexistent/s", "tcp://r:1", dead, docker}},
			true,
			"no container runtime found at the well-known sockets:\n  unix:///nonexistent/s: the socket does not exist\n  " +
				"cri: endpoint \"tcp://r:1\" is not a unix socket: want unix:///path/to/socket or /path/to/socket\n  " + dead + ": nobody listens on the socket; the runtime is not running\n  " +
				docker + ": it serves gRPC but not CRI v1 (runtime.v1.RuntimeService): an old runtime, one with CRI disabled, or another service",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.resolver.Getenv == nil {
				test.resolver.Getenv = func(string) string { return "" }
			}
			_, err := test.resolver.Resolve(t.Context())
			if err == nil || errors.Is(err, endpoint.ErrNone) != test.none {
				t.Fatalf("Resolve() error = %v, want ErrNone %v", err, test.none)
			}
			if err.Error() != test.want {
				t.Errorf("Resolve() error = %q, want %q", err, test.want)
			}
		})
	}
}

// A search that is interrupted has not found that there is no runtime.
func TestSearchIsInterrupted(t *testing.T) {
	_, quiet := kit.Socket(t)
	r := endpoint.Resolver{Getenv: func(string) string { return "" }, DefaultConfig: "/nonexistent/c", WellKnown: []string{"unix://" + quiet}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := r.Resolve(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, endpoint.ErrNone) || err.Error() != "find a container runtime: context canceled" {
		t.Errorf("Resolve() = %v, %v, want the end of the context", got, err)
	}
}

// A socket that this process may not open comes after a runtime that does not work.
func TestClosedSocketIsTheLast(t *testing.T) {
	_, closed := kit.Socket(t)
	_, second := kit.Socket(t)
	fails := serving(t, failing(codes.Unavailable, "server is not initialized yet"))
	for path, mode := range map[string]os.FileMode{closed: 0, second: 0, strings.TrimPrefix(fails, "unix://"): 0o777} {
		kit.Must(t, errors.Join(os.Chmod(path, mode), os.Chmod(filepath.Dir(path), 0o755), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)))
	}
	if os.Geteuid() == 0 { // to whom every socket is open
		kit.Must(t, syscall.Seteuid(65534))
		t.Cleanup(func() { kit.Must(t, syscall.Seteuid(0)) })
	}
	for want, wellKnown := range map[string][]string{fails: {"unix://" + closed, fails}, "unix://" + closed: {"unix:///nonexistent/s", "unix://" + closed, "unix://" + second}} {
		r := endpoint.Resolver{Getenv: func(string) string { return "" }, DefaultConfig: "/nonexistent/c", WellKnown: wellKnown}
		if got, err := r.Resolve(t.Context()); err != nil || got.Address != want {
			t.Errorf("Resolve() of %v = %v, %v, want %s", wellKnown, got, err, want)
		}
	}
}

// The places are those that the help names.
func TestUsualPlaces(t *testing.T) {
	got := strings.Join(append(endpoint.WellKnown(), endpoint.EnvEndpoint, endpoint.EnvConfig, endpoint.DefaultConfig), " ")
	if want := "unix:///run/containerd/containerd.sock unix:///run/crio/crio.sock unix:///var/run/cri-dockerd.sock unix:///run/k3s/containerd/containerd.sock CONTAINER_RUNTIME_ENDPOINT CRI_CONFIG_FILE /etc/crictl.yaml"; got != want {
		t.Errorf("the places are %s, want %s", got, want)
	}
}
