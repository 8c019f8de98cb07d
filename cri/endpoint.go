package cri

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// maxSocketPath is the length in bytes that fits into a sockaddr_un of Linux with
// its final zero.
const maxSocketPath = 107

// The client tries a lost connection again within reconnectMax, without the long
// backoff for a remote server: an attempt on a unix socket takes microseconds.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectMax   = 100 * time.Millisecond
)

// answerWindow is how many bytes of an answer the runtime may send before this
// client reads them. With grpc's default of 64 KiB, the transfer of a list of 110
// pods (350 kB) stops several times for a window update.
const answerWindow = 4 << 20

// socketPath returns the path of an endpoint.
func socketPath(endpoint string) (string, error) {
	p, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && strings.Contains(endpoint, "://") || !path.IsAbs(p) {
		return "", fmt.Errorf("cri: endpoint %q is not a unix socket: want unix:///path/to/socket or /path/to/socket", endpoint)
	}
	if len(p) > maxSocketPath {
		return "", fmt.Errorf("cri: endpoint %q: the path of a unix socket has at most %d bytes, this has %d", endpoint, maxSocketPath, len(p))
	}
	return p, nil
}

// dial prepares a connection, which the first call makes. Each attempt opens the path
// again, so it finds a socket that was replaced.
func dial(socket string, opts Options, own ...grpc.DialOption) (*grpc.ClientConn, error) {
	dialOptions := []grpc.DialOption{
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(opts.MaxRecvBytes)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax,
			},
			// Longer than the call of Check, so that Check ends by its own deadline.
			MinConnectTimeout: opts.ConnectTimeout + reconnectMax,
		}),
	}
	// The target is not the path, which may contain characters that a URL may not.
	return grpc.NewClient("passthrough:///cri", slices.Concat(dialOptions, own, opts.DialOptions)...)
}

// counted counts the connections. The count is the only sign of a connection that was
// lost and made again between two calls.
type counted struct {
	credentials.TransportCredentials
	connections *atomic.Int64
}

func newCounted(connections *atomic.Int64) counted {
	return counted{insecure.NewCredentials(), connections}
}

// ClientHandshake is called once for each connection.
func (c counted) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.connections.Add(1)
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone keeps the counter: grpc clones the credentials it is given.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.connections}
}
