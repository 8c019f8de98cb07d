package cri_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

func listen(t testing.TB, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a path with % and #?.sock")
	serve(t, &fakeRuntime{}, listen(t, path))
	for _, endpoint := range []string{path, "unix://" + path} {
		got, err := newClient(t, endpoint, cri.Options{}).Check(t.Context())
		if want := (cri.Version{RuntimeName: "fake", RuntimeVersion: "v7", APIVersion: "v1"}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", endpoint, got, err, want)
		}
	}
}

// unready answers every call as a runtime that is still starting.
type unready struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	code codes.Code
}

func (u unready) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if u.code == codes.DeadlineExceeded {
		<-ctx.Done()
	}
	return nil, status.Error(u.code, "server is not initialized yet")
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func(t *testing.T, path string)
		words string
		code  codes.Code
	}{
		{"nothing there", func(*testing.T, string) {}, "the socket does not exist", codes.Unavailable},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "it is a directory", codes.Unavailable},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "it is a file, not a socket", codes.Unavailable},
		{"below a file", func(t *testing.T, path string) {
			if err := os.Remove(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a directory", codes.Unavailable},
		{"nobody listens", func(t *testing.T, path string) {
			listener := listen(t, path)
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			listener.Close()
		}, "nobody listens", codes.Unavailable},
		{"no permission for the socket", func(t *testing.T, path string) {
			listen(t, path)
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			becomeNobody(t)
		}, "permission denied", codes.Unavailable},
		{"no permission for its folder", func(t *testing.T, path string) {
			listen(t, path)
			if err := os.Chmod(filepath.Dir(path), 0); err != nil {
				t.Fatal(err)
			}
			becomeNobody(t)
		}, "permission denied", codes.Unavailable},
		{"accepts and never answers", func(t *testing.T, path string) {
			accept(t, listen(t, path), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		}, "accepts connections but never answers", codes.DeadlineExceeded},
		{
			"listens and never accepts", func(t *testing.T, path string) { listen(t, path) },
			"accepts connections but never answers", codes.DeadlineExceeded,
		},
		{"hangs up", func(t *testing.T, path string) {
			accept(t, listen(t, path), func(net.Conn) {})
		}, "does not speak gRPC", codes.Unavailable},
		{"a web server", func(t *testing.T, path string) {
			server, listener := &http.Server{ReadHeaderTimeout: time.Second}, listen(t, path)
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Serve(listener) })
			t.Cleanup(func() { server.Close(); wg.Wait() })
		}, "does not speak gRPC", codes.Unavailable},
		{"gRPC without CRI", func(t *testing.T, path string) {
			server, listener := grpc.NewServer(), listen(t, path)
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Serve(listener) })
			t.Cleanup(func() { server.Stop(); wg.Wait() })
		}, "not CRI v1", codes.Unimplemented},
		{"a runtime that is starting", func(t *testing.T, path string) {
			serve(t, unready{code: codes.Unavailable}, listen(t, path))
		}, "not ready to serve", codes.Unavailable},
		{"a runtime that hangs", func(t *testing.T, path string) {
			serve(t, unready{code: codes.DeadlineExceeded}, listen(t, path))
		}, "does not answer within 1s", codes.DeadlineExceeded},
		{"a runtime that is broken", func(t *testing.T, path string) {
			serve(t, unready{code: codes.Internal}, listen(t, path))
		}, "answers with an error", codes.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d", "cri.sock")
			if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			tt.setUp(t, path)
			timeout := time.Minute
			if tt.code == codes.DeadlineExceeded {
				timeout = time.Second
			}
			client := newClient(t, path, cri.Options{ConnectTimeout: timeout})
			_, err := client.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), "check runtime at "+path+": ") || !strings.Contains(err.Error(), tt.words) {
				t.Fatalf("got %v, want an error with %q", err, tt.words)
			}
			if got := status.Code(err); got != tt.code {
				t.Errorf("code %v of %v, want %v", got, err, tt.code)
			}
		})
	}
}

// accept hands each connection to serve and closes it then, until the test ends.
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

// becomeNobody gives up root until the test ends, so that permissions count.
// The folders above, which only root may enter, are opened.
func becomeNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Seteuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Seteuid(0); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCheckEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	listen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newClient(t, path, cri.Options{}).Check(ctx)
	if status.Code(err) != codes.Canceled || strings.Contains(err.Error(), ": it ") {
		t.Errorf("got %v, want Canceled and no guess about the runtime", err)
	}
}
