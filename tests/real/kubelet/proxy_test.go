//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// inspectionTime is the least time of an inspection while the runtime is slow: a
// container's status takes that long on a busy node.
const inspectionTime = 12 * time.Millisecond

// proxy passes the calls of a kubelet on to a runtime. While it is slow, it serves the
// status calls one after the other, as a runtime behind one lock does.
type proxy struct {
	conn *grpc.ClientConn
	slow atomic.Bool
	lock sync.Mutex // held by the status call that is served
}

// startProxy serves a socket in front of the runtime until the test ends, and returns
// its address.
func startProxy(ctx context.Context, t *testing.T, runtime string) (*proxy, string) {
	t.Helper()
	conn, err := grpc.NewClient(runtime, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(16<<20)))
	kit.Must(t, err)
	socket := filepath.Join(process.Dir(t), "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	kit.Must(t, err)
	p := &proxy{conn: conn}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(p.call))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-served, conn.Close()); err != nil {
			t.Errorf("stop proxy: %v", err)
		}
	})
	return p, "unix://" + socket
}

// call passes on one call. Every call of the CRI consists of one request and some answers.
func (p *proxy) call(_ any, from grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	method, _ := grpc.MethodFromServerStream(from)
	if p.slow.Load() && (strings.HasSuffix(method, "/ContainerStatus") || strings.HasSuffix(method, "/PodSandboxStatus")) {
		p.lock.Lock()
		defer p.lock.Unlock()
		pause(ctx, inspectionTime)
	}
	var message []byte
	if err := from.RecvMsg(&message); err != nil {
		return err
	}
	to, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	// An error of the runtime comes from RecvMsg.
	if err := errors.Join(to.SendMsg(&message), to.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		switch err := to.RecvMsg(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := from.SendMsg(&message); err != nil {
			return err
		}
	}
}

// raw is a codec that leaves messages as they are.
type raw struct{}

// Name is a part of the content type. CRI-O accepts only a content type without a name.
func (raw) Name() string { return "" }

func (raw) Marshal(v any) ([]byte, error) {
	if message, ok := v.(*[]byte); ok {
		return *message, nil
	}
	return nil, fmt.Errorf("marshal a %T", v)
}

func (raw) Unmarshal(data []byte, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal into a %T", v)
	}
	*message = data
	return nil
}
