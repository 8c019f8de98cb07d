package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Problem is the kind of a [ConnectError].
type Problem int

// The problems, from the socket up to the runtime.
const (
	NoSocket     Problem = iota + 1 // nothing exists at the path
	SocketGone                      // nothing exists at the path any more, but a process listens there
	NotSocket                       // a directory or a file is at the path
	NoPermission                    // this process may not connect
	NotListening                    // the socket exists, and no process listens on it
	NoConnection                    // connecting failed for another reason
	NoAnswer                        // the socket accepts the connection, and the call does not return in time
	NotGRPC                         // the socket accepts the connection and closes it, or answers in another protocol
	NotCRI                          // the server does not offer the runtime service of CRI v1
	Failing                         // the runtime answers with an error, or is not ready to serve
)

// ConnectError says why the runtime at an endpoint cannot be used.
type ConnectError struct {
	Endpoint string // as it was given
	Problem  Problem
	// Reason describes the problem in words.
	Reason string
	// Err is the grpc error of the failed call; nil if no call was made.
	Err error
}

// Error returns the endpoint, the reason, and the error of the call if there is one.
func (e *ConnectError) Error() string {
	if e.Err == nil {
		return e.Endpoint + ": " + e.Reason
	}
	return e.Endpoint + ": " + e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the error of the call.
func (e *ConnectError) Unwrap() error { return e.Err }

// Version describes a runtime.
type Version struct {
	// RuntimeName is the name of the runtime, such as containerd or cri-o.
	RuntimeName    string
	RuntimeVersion string
}

// Check asks the runtime for its version. It blocks for at most
// Options.ConnectTimeout, and as long again to diagnose the socket after a failure.
// Unless ctx has ended, the error wraps a [*ConnectError]; status.FromError finds
// the grpc code.
func (c *Client) Check(ctx context.Context) (Version, error) {
	callCtx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	var server peer.Peer
	answer, err := c.runtime.Version(callCtx, &runtimeapi.VersionRequest{}, grpc.Peer(&server))
	if err != nil && ctx.Err() != nil {
		return Version{}, fmt.Errorf("check runtime at %s: %w", c.endpoint, err)
	}
	if err != nil {
		return Version{}, fmt.Errorf("check runtime at %w", c.diagnose(ctx, err, server.Addr != nil, callCtx.Err() != nil))
	}
	return Version{
		RuntimeName:    answer.GetRuntimeName(),
		RuntimeVersion: answer.GetRuntimeVersion(),
	}, nil
}

// diagnose says in words why a call failed. The grpc error alone does not: a missing
// socket, a missing permission and a web server all cause the code Unavailable.
// connected is true if the call was sent over a gRPC connection. late is true if its deadline has
// passed: on a busy machine, the attempt to connect may then fail before the call does.
func (c *Client) diagnose(ctx context.Context, err error, connected, late bool) *ConnectError {
	e := &ConnectError{Endpoint: c.endpoint, Problem: Failing, Reason: "it answers with an error", Err: err}
	switch code := status.Code(err); {
	case code == codes.Unimplemented && !strings.Contains(status.Convert(err).Message(), "method Version not implemented"): // the server offers the service
		e.Problem = NotCRI
		e.Reason = "it serves gRPC but not CRI v1 (runtime.v1.RuntimeService): an old runtime, one with CRI disabled, or another service"
	case code == codes.DeadlineExceeded && connected:
		e.Problem, e.Reason = NoAnswer, fmt.Sprintf("it does not answer within %v", c.opts.ConnectTimeout)
	case code == codes.Unavailable && connected:
		e.Reason = "it is not ready to serve"
	case code == codes.DeadlineExceeded, code == codes.Unavailable && late, silent(err):
		e.Problem, e.Reason = NoAnswer, "it accepts connections but never answers"
	case code == codes.Unavailable:
		e.Problem, e.Reason = NotGRPC, "it accepts connections but does not speak gRPC"
	}
	if connected {
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	if problem, reason := diagnoseSocket(ctx, c.socket); problem != 0 {
		e.Problem, e.Reason = problem, reason
	}
	return e
}

// gone explains the effect of a removed socket.
const gone = "is gone: the runtime answers only on connections that are open"

// listens reports whether a process listens on a socket that may have been removed. It sees the
// sockets of its own network namespace.
func listens(path string) bool {
	const acceptCon = "00010000"                // the flag __SO_ACCEPTCON
	sockets, _ := os.ReadFile("/proc/net/unix") // without it, none are known
	path = resolved(path)
	for line := range strings.Lines(string(sockets)) {
		fields := strings.Fields(line)
		_, bound, absolute := strings.Cut(line, " /") // the path may contain spaces
		if absolute && fields[3] == acceptCon && resolved("/"+strings.TrimSuffix(bound, "\n")) == path {
			return true
		}
	}
	return false
}

// resolved returns the path of a socket without links in its folder: a runtime may name its socket
// by a link, such as /var/run. Another path that only ends like it is another program's.
func resolved(path string) string {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, filepath.Base(path))
}

// diagnoseSocket returns the problem of a socket; 0 if it accepts a connection.
func diagnoseSocket(ctx context.Context, path string) (Problem, string) {
	noPermission := "permission denied"
	if os.Geteuid() != 0 {
		noPermission += "; root is usually needed: try sudo"
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && listens(path):
		return SocketGone, "the socket " + gone
	case errors.Is(err, fs.ErrNotExist):
		return NoSocket, "the socket does not exist"
	case errors.Is(err, fs.ErrPermission):
		return NoPermission, noPermission
	case err != nil:
		return NoConnection, err.Error()
	case info.IsDir():
		return NotSocket, "it is a directory, not a socket"
	case info.Mode()&fs.ModeSocket == 0:
		return NotSocket, "it is a file, not a socket"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return NoPermission, noPermission
	case errors.Is(err, syscall.ECONNREFUSED):
		return NotListening, "nobody listens on the socket; the runtime is not running"
	case err != nil:
		return NoConnection, err.Error()
	}
	conn.Close()
	return 0, ""
}
