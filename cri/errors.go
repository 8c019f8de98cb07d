package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var errNilStatus = errors.New("malformed answer: no status in it")

// wrapList names the list that failed, and says what to do about one that is
// too great.
func (c *Client) wrapList(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.ResourceExhausted:
		return fmt.Errorf("%s: the list exceeds the %d bytes of Options.MaxRecvBytes, or the runtime's own limit: %w",
			operation, c.opts.MaxRecvBytes, err)
	}
	return fmt.Errorf("%s: %w", operation, unavailable(err))
}

// away is the error of a call that found no runtime, or one that is not ready.
type away struct{ error }

// Is makes it a [pleg.ErrUnavailable] as well.
func (away) Is(target error) bool { return target == pleg.ErrUnavailable }

func (a away) Unwrap() error { return a.error }

func unavailable(err error) error {
	if status.Code(err) == codes.Unavailable {
		return away{err}
	}
	return err
}

// explain says in words why Check failed. A grpc error alone does not: no
// socket, no permission and a web server are all the code Unavailable. connected
// tells that the call went out over a gRPC connection.
func (c *Client) explain(ctx context.Context, err error, connected bool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("check runtime at %s: %w", c.endpoint, err)
	}
	why := "it answers with an error"
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		why = "it serves gRPC but not CRI v1 (runtime.v1.RuntimeService): an old runtime, one with CRI disabled, or another service"
	case code == codes.DeadlineExceeded && connected:
		why = fmt.Sprintf("it does not answer within %v", c.opts.ConnectTimeout)
	case code == codes.DeadlineExceeded:
		why = c.probe(ctx, "it accepts connections but never answers")
	case code == codes.Unavailable && !connected:
		why = c.probe(ctx, "it accepts connections but does not speak gRPC")
	case code == codes.Unavailable:
		why = "it is not ready to serve"
	}
	return fmt.Errorf("check runtime at %s: %s: %w", c.endpoint, why, err)
}

// probe looks at the socket itself. It returns what is wrong with it, or
// otherwise if it can be connected to.
func (c *Client) probe(ctx context.Context, otherwise string) string {
	info, err := os.Stat(c.socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the socket does not exist; is the runtime running?"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied; root is usually needed"
	case err != nil:
		return err.Error()
	case info.IsDir():
		return "it is a directory, not a socket"
	case info.Mode()&fs.ModeSocket == 0:
		return "it is a file, not a socket"
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "permission denied; root is usually needed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens on the socket; the runtime is not running"
	case err != nil:
		return err.Error()
	}
	defer conn.Close()
	return otherwise
}
