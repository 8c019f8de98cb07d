package server

import (
	"context"
	"net"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

// Listen listens on a unix socket that its owner and group may use. Closing the
// listener removes it. A socket that is left from a process which has ended is
// replaced; one that is answered, a path that is no socket, and one that may
// not be used are errors that say so.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return unixsocket.Listen(ctx, path)
}
