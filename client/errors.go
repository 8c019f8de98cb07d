package client

import (
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callError wraps the error of a call. If there was no connection, it wraps the error of
// the dialer, so that errors.Is finds, for example, [fs.ErrNotExist]. status.Code
// returns the gRPC code in both cases.
func (l *link) callError(what string, err error) error {
	if status.Code(err) == codes.Unavailable {
		if d := l.dialed.Load(); d != nil && d.err != nil {
			return fmt.Errorf("%s: %w", what, &connectError{err: d.err, status: status.Convert(err)})
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// connectError is the error of a failed attempt to connect.
type connectError struct {
	err    error
	status *status.Status
}

// Error implements error.
func (e *connectError) Error() string { return e.err.Error() }

// Unwrap returns the error of the dialer.
func (e *connectError) Unwrap() error { return e.err }

// GRPCStatus returns the status that gRPC derived from it.
func (e *connectError) GRPCStatus() *status.Status { return e.status }

// isFinal reports whether no later attempt can succeed.
func isFinal(err error) bool {
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
