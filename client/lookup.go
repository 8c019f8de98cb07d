package client

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
)

// Lookup says which container and pod a container id, a process or a cgroup belongs to. It is
// the server's Pipeline.Lookup, with the errors of package lookup: a process is one of the
// server's pid namespace. It blocks until the server has answered or ctx ends.
func (c *Client) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	if err := q.Check(); err != nil {
		return lookup.Container{}, err
	}
	m, err := c.calls.pleg.Lookup(ctx, wire.FromQuery(q))
	if err == nil {
		return wire.ToContainer(m), nil
	}
	is := map[codes.Code]error{codes.NotFound: lookup.ErrNoContainer, codes.FailedPrecondition: lookup.ErrNotYet, codes.InvalidArgument: lookup.ErrBadQuery}
	if is := is[status.Code(err)]; is != nil {
		return lookup.Container{}, &lookupError{status.Convert(err).Message(), is}
	}
	return lookup.Container{}, c.calls.callError("look up "+q.String(), err)
}

// lookupError is an error of package lookup in the words of the server.
type lookupError struct {
	text string
	is   error
}

// Error implements error.
func (e *lookupError) Error() string { return e.text }

// Unwrap returns the error of package lookup.
func (e *lookupError) Unwrap() error { return e.is }
