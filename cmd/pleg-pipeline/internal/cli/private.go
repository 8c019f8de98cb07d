package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// servePrivately calls use with the endpoint of a private socket on which parts
// serve. The parts end only after use has returned, as a runtime outlives its
// clients. If a part fails, its error is the cause that ends the context of use.
func servePrivately(
	ctx context.Context, use func(ctx context.Context, endpoint string) error, parts ...func(context.Context, net.Listener) error,
) (err error) {
	dir, err := os.MkdirTemp("", Name+"-")
	if err != nil {
		return fmt.Errorf("create a socket: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("create a socket: %w", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group errgroup.Group
	for _, part := range parts {
		group.Go(func() error {
			err := part(serving, listener)
			if err != nil {
				end(err)
			}
			return err
		})
	}
	err = use(ctx, "unix://"+socket)
	stop()
	_ = group.Wait() // use got their errors
	return err
}
