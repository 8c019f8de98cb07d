package cri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

func listen(t testing.TB, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a path with % and #?.sock")
	rawruntime.Serve(t, &rawruntime.Runtime{}, listen(t, path))
	for _, endpoint := range []string{path, "unix://" + path} {
		client := newClient(t, endpoint, cri.Options{})
		got, err := client.Check(t.Context())
		if want := (cri.Version{RuntimeName: "fake", RuntimeVersion: "v7"}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", endpoint, got, err, want)
		}
		if got := client.Report().Endpoint; got != endpoint {
			t.Errorf("the report names %s, want %s", got, endpoint)
		}
	}
}

// unready answers each unary call with an error, as a runtime that is still starting does.
// With DeadlineExceeded it does not answer.
func unready(code codes.Code) *rawruntime.Runtime {
	return &rawruntime.Runtime{Before: func(ctx context.Context, _ any) error {
		if code == codes.DeadlineExceeded {
			<-ctx.Done()
		}
		return status.Error(code, "server is not initialized yet")
	}}
}

// brokenEndpoint is something other than a runtime at its path.
type brokenEndpoint struct {
	name    string
	setUp   func(t *testing.T, path string)
	reason  string
	problem cri.Problem
	code    codes.Code
}

// At brokenSockets no server speaks gRPC.
func brokenSockets() []brokenEndpoint {
	return []brokenEndpoint{
		{"nothing there, and another listens in the folder", func(t *testing.T, path string) {
			listen(t, filepath.Join(filepath.Dir(path), "other.sock"))
		}, "the socket does not exist", cri.NoSocket, codes.Unavailable},
		{"the socket was removed", func(t *testing.T, path string) {
			listen(t, path)
			must(t, os.Remove(path))
		}, "the socket is gone: the runtime answers only on connections that are open", cri.SocketGone, codes.Unavailable},
		{"the socket was removed, named by a link", func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+" of it"))
			must(t, os.Symlink("d of it", filepath.Dir(path)))
			listen(t, filepath.Join(filepath.Dir(path)+" of it", "cri.sock"))
			must(t, os.Remove(path))
		}, "the socket is gone: the runtime answers only on connections that are open", cri.SocketGone, codes.Unavailable},
		{"the socket was removed by a process that has ended, and a connection is left", func(t *testing.T, path string) {
			listener := listen(t, path)
			conn, err := net.Dial("unix", path)
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			accepted, err := listener.Accept()
			must(t, err)
			t.Cleanup(func() { accepted.Close() })
			listener.Close()
		}, "the socket does not exist", cri.NoSocket, codes.Unavailable},
		{"another's socket", func(t *testing.T, path string) {
			root, err := os.MkdirTemp("", "") //nolint:usetesting // the path of t.TempDir is too long for a socket
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(root) })
			other := filepath.Join(root, path) // as /system/run/containerd/containerd.sock on Talos
			must(t, os.MkdirAll(filepath.Dir(other), 0o700))
			listen(t, other)
		}, "the socket does not exist", cri.NoSocket, codes.Unavailable},
		{"the socket was removed with its folder", func(t *testing.T, path string) {
			listen(t, path)
			must(t, os.RemoveAll(filepath.Dir(path)))
		}, "the socket is gone: the runtime answers only on connections that are open", cri.SocketGone, codes.Unavailable},
		{"no folder, as that of another's socket", func(t *testing.T, path string) {
			other := filepath.Join(filepath.Dir(path), "o", "cri.sock") // as in the mounts of a container
			must(t, os.Mkdir(filepath.Dir(other), 0o700))
			listen(t, other)
			must(t, os.RemoveAll(filepath.Dir(path)))
		}, "the socket does not exist", cri.NoSocket, codes.Unavailable},
		{"a socket of another kind", func(t *testing.T, path string) {
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			must(t, err)
			t.Cleanup(func() { conn.Close() })
		}, "dial unix PATH: connect: protocol wrong type for socket", cri.NoConnection, codes.Unavailable},
		{"a directory", func(t *testing.T, path string) {
			must(t, os.Mkdir(path, 0o700))
		}, "it is a directory, not a socket", cri.NotSocket, codes.Unavailable},
		{"a file", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, nil, 0o600))
		}, "it is a file, not a socket", cri.NotSocket, codes.Unavailable},
		{"below a file", func(t *testing.T, path string) {
			must(t, os.Remove(filepath.Dir(path)))
			must(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
		}, "stat PATH: not a directory", cri.NoConnection, codes.Unavailable},
		{"nobody listens", func(t *testing.T, path string) {
			listener := listen(t, path)
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			listener.Close()
		}, "nobody listens on the socket; the runtime is not running", cri.NotListening, codes.Unavailable},
		{"no permission for the socket", func(t *testing.T, path string) {
			listen(t, path)
			must(t, os.Chmod(path, 0))
			becomeNobody(t)
		}, "permission denied; root is usually needed: try sudo", cri.NoPermission, codes.Unavailable},
		{"no permission for its folder", func(t *testing.T, path string) {
			listen(t, path)
			must(t, os.Chmod(filepath.Dir(path), 0))
			becomeNobody(t)
		}, "permission denied; root is usually needed: try sudo", cri.NoPermission, codes.Unavailable},
		{"accepts and never answers", func(t *testing.T, path string) {
			accept(t, listen(t, path), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		}, "it accepts connections but never answers", cri.NoAnswer, codes.DeadlineExceeded},
		{
			"listens and never accepts", func(t *testing.T, path string) { listen(t, path) },
			"it accepts connections but never answers", cri.NoAnswer, codes.DeadlineExceeded,
		},
		{"closes the connection", func(t *testing.T, path string) {
			accept(t, listen(t, path), func(net.Conn) {})
		}, "it accepts connections but does not speak gRPC", cri.NotGRPC, codes.Unavailable},
		{"a web server", func(t *testing.T, path string) {
			server, listener := &http.Server{ReadHeaderTimeout: time.Second}, listen(t, path)
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Serve(listener) })
			t.Cleanup(func() { server.Close(); wg.Wait() })
		}, "it accepts connections but does not speak gRPC", cri.NotGRPC, codes.Unavailable},
	}
}

// brokenServers speak gRPC.
func brokenServers() []brokenEndpoint {
	return []brokenEndpoint{
		{"gRPC without CRI", func(t *testing.T, path string) {
			rawruntime.Serve(t, nil, listen(t, path))
		}, "it serves gRPC but not CRI v1 (runtime.v1.RuntimeService): an old runtime, one with CRI disabled, or another service", cri.NotCRI, codes.Unimplemented},
		{"CRI without Version", func(t *testing.T, path string) {
			rawruntime.Serve(t, &rawruntime.Runtime{Before: func(context.Context, any) error {
				return status.Error(codes.Unimplemented, "method Version not implemented yet")
			}}, listen(t, path))
		}, "it answers with an error", cri.Failing, codes.Unimplemented},
		{"a runtime that is starting", func(t *testing.T, path string) {
			rawruntime.Serve(t, unready(codes.Unavailable), listen(t, path))
		}, "it is not ready to serve", cri.Failing, codes.Unavailable},
		{"a runtime that is broken", func(t *testing.T, path string) {
			rawruntime.Serve(t, unready(codes.Internal), listen(t, path))
		}, "it answers with an error", cri.Failing, codes.Internal},
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for _, tt := range slices.Concat(brokenSockets(), brokenServers()) {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d", "cri.sock")
			must(t, os.Mkdir(filepath.Dir(path), 0o755))
			tt.setUp(t, path)
			timeout := time.Minute
			if tt.code == codes.DeadlineExceeded {
				timeout = 100 * time.Millisecond
			}
			_, err := newClient(t, path, cri.Options{ConnectTimeout: timeout}).Check(t.Context())
			wantConnectError(t, err, path, tt.problem, strings.ReplaceAll(tt.reason, "PATH", path))
			if got := status.Code(err); got != tt.code {
				t.Errorf("code %v of %v, want %v", got, err, tt.code)
			}
		})
	}
}

func TestCheckOfHungRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := connect(t, unready(codes.DeadlineExceeded), cri.Options{ConnectTimeout: 7 * time.Second}).Check(t.Context())
		wantConnectError(t, err, "/in-memory", cri.NoAnswer, "it does not answer within 7s")
		if got := status.Code(err); got != codes.DeadlineExceeded {
			t.Errorf("code %v of %v, want DeadlineExceeded", got, err)
		}
	})
}

// The attempt to connect may fail after the time of the call, or have failed before: grpc returns its last error.
func TestCheckOfALateFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	listen(t, path)
	for says, wait := range map[string]func(context.Context){
		"connection error": func(ctx context.Context) { <-ctx.Done() },
		`connection error: desc = "error reading server preface: context deadline exceeded"`: func(context.Context) {},
	} {
		fails := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			wait(ctx)
			return status.Error(codes.Unavailable, says)
		}
		_, err := newClient(t, path, cri.Options{
			ConnectTimeout: 50 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(fails)},
		}).Check(t.Context())
		wantConnectError(t, err, path, cri.NoAnswer, "it accepts connections but never answers")
	}
}

func wantConnectError(t *testing.T, err error, endpoint string, problem cri.Problem, reason string) {
	t.Helper()
	got, ok := errors.AsType[*cri.ConnectError](err)
	if !ok || got.Endpoint != endpoint || got.Problem != problem || got.Reason != reason || err.Error() != fmt.Sprintf("check runtime at %s: %s: %v", endpoint, reason, got.Err) {
		t.Fatalf("got %v (%+v), want problem %d of %s: %s", err, got, problem, endpoint, reason)
	}
	if alone := (&cri.ConnectError{Endpoint: endpoint, Reason: reason}); alone.Error() != endpoint+": "+reason {
		t.Errorf("without a call the error is %v", alone)
	}
}

// accept calls serve with each connection and then closes it, until the test ends.
func accept(t *testing.T, listener net.Listener, serve func(net.Conn)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
	})
}

// becomeNobody drops root until the test ends, so that permissions apply. It opens the
// parent folder, which only root may enter.
func becomeNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	must(t, os.Chmod(filepath.Dir(t.TempDir()), 0o755))
	must(t, syscall.Seteuid(65534))
	t.Cleanup(func() {
		must(t, syscall.Seteuid(0))
	})
}

func TestCheckEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	listen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newClient(t, path, cri.Options{}).Check(ctx)
	if status.Code(err) != codes.Canceled || err.Error() != "check runtime at "+path+": rpc error: code = Canceled desc = context canceled" {
		t.Errorf("got %v, want the endpoint, Canceled and no diagnosis", err)
	}
}
