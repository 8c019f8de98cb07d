package client

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

// maxMessage is the greatest size of the status of one pod, in bytes. Annotations can
// make it large.
const maxMessage = 16 << 20

// link is one connection. If the server is unreachable, a call on it fails at once.
type link struct {
	*grpc.ClientConn
	pleg plegv1.PLEGClient
	// dialed is the result of the last attempt to connect. gRPC keeps only the text
	// of its error.
	dialed atomic.Pointer[dialed]
}

type dialed struct{ err error }

func newLink(o Options) (*link, error) {
	l := &link{}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := o.Dial(ctx)
		l.dialed.Store(&dialed{err})
		return conn, err
	}
	var err error
	l.ClientConn, err = grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: o.MinBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: o.MaxBackoff},
			MinConnectTimeout: o.Keepalive,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.Keepalive, Timeout: o.Keepalive}),
	)
	if err != nil {
		return nil, err
	}
	l.pleg = plegv1.NewPLEGClient(l)
	return l, nil
}
