package endpoint

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"
)

// probeTimeout is generous: a unix socket accepts at once unless its backlog
// is full.
const probeTimeout = time.Second

// probe connects to a socket and hangs up. A file alone proves nothing: a
// runtime that was removed or killed leaves its socket behind.
func probe(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("does not exist")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("permission denied (root is usually needed)")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nobody listens (the runtime is not running)")
	}
	return err
}
