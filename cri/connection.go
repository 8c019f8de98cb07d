package cri

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

// connection is a connection to a runtime, and what was learnt of that runtime: the next connection
// may be to an upgraded runtime, or to another one.
type connection struct {
	// made is zero for the first connection: the client has no older statuses.
	made time.Time
	pid  int  // of the process at the other end
	unix bool // it is to a unix socket: a dialer may make others
	// uncarried is true if the last sandbox status did not carry the statuses of its containers.
	uncarried atomic.Bool
	// hasEvents is set once an event stream has had an event, or has lived longer than the stream
	// of a runtime whose events are switched off. noEvents is why the runtime has none.
	hasEvents atomic.Bool
	noEvents  atomic.Pointer[error]
}

// observed notes the last connection.
type observed struct {
	credentials.TransportCredentials
	first *connection // stands for the first connection until that is made
	last  atomic.Pointer[connection]
}

func newObserved() *observed {
	o := &observed{TransportCredentials: insecure.NewCredentials(), first: &connection{}}
	o.last.Store(o.first)
	return o
}

// ClientHandshake is called once for each connection.
func (o *observed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &connection{pid: unixsocket.Server(conn), unix: conn.RemoteAddr().Network() == "unix"}
	if o.last.Load() != o.first {
		c.made = time.Now()
	}
	o.last.Store(c)
	return o.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone keeps what is observed: grpc clones the credentials it is given.
func (o *observed) Clone() credentials.TransportCredentials { return o }
