package client

import (
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failed wraps the error of a call. If there was no connection, it wraps why,
// so that errors.Is finds for instance [fs.ErrNotExist]. The gRPC code can be
// had by status.Code in any case.
func (l *link) failed(what string, err error) error {
	if status.Code(err) == codes.Unavailable {
		if d := l.dialed.Load(); d != nil && d.err != nil {
			return fmt.Errorf("%s: %w", what, &connectError{err: d.err, status: status.Convert(err)})
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// connectError is a failed attempt to connect.
type connectError struct {
	err    error
	status *status.Status
}

// Error implements error.
func (e *connectError) Error() string { return e.err.Error() }

// Unwrap returns what the dialer said.
func (e *connectError) Unwrap() error { return e.err }

// GRPCStatus is what gRPC made of it.
func (e *connectError) GRPCStatus() *status.Status { return e.status }

// final reports whether trying again is of no use.
func final(err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return true
	default:
		return false
	}
}
