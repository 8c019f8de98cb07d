package client_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
)

// endless is a server whose list of pods does not end.
type endless struct{ plegv1.UnimplementedPLEGServer }

func (endless) ListPods(_ *plegv1.ListPodsRequest, stream grpc.ServerStreamingServer[plegv1.ListPodsResponse]) error {
	for {
		if err := stream.Send(&plegv1.ListPodsResponse{Pod: &plegv1.Pod{Uid: "a"}}); err != nil {
			return err
		}
	}
}

func TestPodsOfEndlessListEnd(t *testing.T) {
	listener := bufconn.Listen(1 << 20)
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	plegv1.RegisterPLEGServer(s, endless{})
	served := make(chan error)
	go func() { served <- s.Serve(listener) }()
	defer func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New("", client.Options{Dial: func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if pods, err := c.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 100000 pods") {
		t.Errorf("%d pods, %v, want an error", len(pods), err)
	}
}
