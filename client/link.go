package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxMessage is the greatest size of the status of one pod, in bytes. Annotations can
// make it large.
const maxMessage = 16 << 20

// maxHeaders is the greatest size of the headers and trailers of a call, in bytes. The trailers
// contain the message of an error.
const maxHeaders = 64 << 10

// maxTries and retryRefused repeat a refused call for the status of a pod: a server bounds the calls
// at the same time, and a caller that gave up would lose the change behind a PodSync.
const (
	maxTries     = 100
	retryRefused = `{"methodConfig": [{
		"name": [{"service": "pleg.v1.PLEG", "method": "GetPodStatus"}, {"service": "pleg.v1.PLEG", "method": "RequestRelist"}],
		"retryPolicy": {
			"maxAttempts": 100, "initialBackoff": "0.05s", "maxBackoff": "5s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
		}
	}]}`
)

// link is one connection. If the server is unreachable, a call on it fails at once.
type link struct {
	*grpc.ClientConn
	pleg plegv1.PLEGClient
	// dialed is the result of the last attempt to connect. gRPC keeps only the text
	// of its error.
	dialed atomic.Pointer[dialed]
}

type dialed struct{ err error }

func newLink(o Options) (*link, error) {
	l := &link{}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := o.Dial(ctx)
		l.dialed.Store(&dialed{err})
		return conn, err
	}
	var err error
	l.ClientConn, err = grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultServiceConfig(retryRefused),
		grpc.WithMaxCallAttempts(maxTries),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: pingAfter,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingAfter}),
	)
	if err != nil {
		return nil, err
	}
	l.pleg = plegv1.NewPLEGClient(l)
	return l, nil
}

// callError wraps the error of a call. errors.Is finds the dialer's error if there was no
// connection, such as [fs.ErrNotExist], the error of a context that has ended, and the errors of
// package pleg. status.Code returns the gRPC code.
func (l *link) callError(what string, err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable:
		err = l.unavailable(s)
	case codes.NotFound:
		err = &callError{s, []error{pleg.ErrUnknownPod}}
	case codes.DeadlineExceeded:
		err = &callError{s, []error{context.DeadlineExceeded}}
	case codes.Canceled:
		err = &callError{s, []error{context.Canceled}}
	case codes.InvalidArgument:
		err = &callError{s, []error{pleg.ErrInvalidOption}}
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (l *link) unavailable(s *status.Status) error {
	d := l.dialed.Load()
	switch {
	case wire.IsNotSynced(s):
		return &callError{s, []error{pleg.ErrNotSynced}}
	case d == nil || d.err == nil:
		return &callError{s, []error{pleg.ErrNoDaemon}}
	case errors.Is(d.err, fs.ErrPermission): // the daemon may be there
		return &callError{status.New(s.Code(), d.err.Error()), []error{d.err}}
	}
	return &callError{status.New(s.Code(), d.err.Error()), []error{pleg.ErrNoDaemon, d.err}}
}

// callError is an error that gRPC reports only as a status.
type callError struct {
	status *status.Status
	is     []error
}

// Error implements error.
func (e *callError) Error() string { return e.status.Message() }

// Unwrap returns the errors.
func (e *callError) Unwrap() []error { return e.is }

// GRPCStatus returns the status.
func (e *callError) GRPCStatus() *status.Status { return e.status }

// isFinal reports whether the daemon says that no later attempt can succeed.
func isFinal(err error) bool {
	final := []codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated}
	return slices.Contains(final, status.Code(err))
}
