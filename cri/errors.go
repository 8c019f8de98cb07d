package cri

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// wrapList adds the list that failed to an error, and what to do if the list is too
// large.
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

// unavailableError is the error of a call that found no runtime, or one that is not
// ready.
type unavailableError struct{ error }

// Is makes it a [pleg.ErrUnavailable] as well.
func (unavailableError) Is(target error) bool { return target == pleg.ErrUnavailable }

func (e unavailableError) Unwrap() error { return e.error }

func unavailable(err error) error {
	if status.Code(err) == codes.Unavailable {
		return unavailableError{err}
	}
	return err
}
