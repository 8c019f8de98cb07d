package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Lookup says which container and pod a container id, a process or a cgroup belongs to. It is the
// server's Pipeline.Lookup, with the same errors; a process id is one of the server's pid
// namespace. It blocks until the server has answered or ctx ends.
func (c *Client) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	if err := option.CheckQuery(q); err != nil {
		return lookup.Container{}, err
	}
	m, err := c.calls.pleg.Lookup(ctx, wire.FromQuery(q))
	switch s := status.Convert(err); {
	case err == nil:
		return wire.ToContainer(m), nil
	case s.Code() == codes.NotFound:
		return lookup.Container{}, &callError{s, []error{lookup.ErrNoContainer}}
	case s.Code() == codes.FailedPrecondition:
		return lookup.Container{}, &callError{s, []error{lookup.ErrNotYet}}
	case wire.IsNotSynced(s):
		err = &callError{s, []error{lookup.ErrNotYet, pleg.ErrNotSynced}}
		return lookup.Container{}, fmt.Errorf("look up %s: %w", q, err)
	}
	return lookup.Container{}, c.calls.callError("look up "+q.String(), err)
}
