package server

import (
	"context"
	"net"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

// Listen listens on a unix socket that only its owner and group may use. Closing the
// listener removes the socket. Listen replaces the socket of a process that has
// ended. It returns an error that says why if another process answers on the socket,
// if the path is not a socket, or if permission is denied.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return unixsocket.Listen(ctx, path)
}
