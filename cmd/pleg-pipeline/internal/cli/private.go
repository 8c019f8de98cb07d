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

// servePrivately calls use with the endpoint of a private socket, on which parts
// serve until use has returned: they go down last, as a runtime does. The error
// of a part is the cause that ends use.
func servePrivately(
	ctx context.Context, use func(ctx context.Context, endpoint string) error, parts ...func(context.Context, net.Listener) error,
) (err error) {
	dir, err := os.MkdirTemp("", Name+"-")
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
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
	_ = group.Wait() // use has been told
	return err
}
