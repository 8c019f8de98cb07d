package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

const (
	// maxHealthCalls is the greatest number of calls of each method of the health
	// service at the same time, and maxReflections that of reflection.
	maxHealthCalls = 64
	maxReflections = 8
)

// limits are the calls on all connections together. They are checked before a call costs
// a goroutine.
type limits struct {
	all     chan struct{} // holds one value per call
	methods map[string]method
	timeout time.Duration
	metrics *metrics
}

// method has the limit of one method.
type method struct {
	slots chan struct{} // holds one value per call
	// brief calls end within the timeout, and all others have sent their request by
	// then. Otherwise their connection is closed.
	brief bool
}

func newLimits(o Options, m *metrics) *limits {
	slots := func(n int) chan struct{} { return make(chan struct{}, n) }
	return &limits{
		all: slots(o.MaxCalls), timeout: o.AnswerTimeout, metrics: m,
		methods: map[string]method{
			plegv1.PLEG_Watch_FullMethodName:        {slots(o.MaxCalls), false}, // the handler counts them
			plegv1.PLEG_ListPods_FullMethodName:     {slots(o.MaxLists), true},
			plegv1.PLEG_GetPodStatus_FullMethodName: {slots(o.MaxStatusCalls), false},
			plegv1.PLEG_GetStatus_FullMethodName:    {slots(o.MaxStatusCalls), true},
			healthv1.Health_Check_FullMethodName:    {slots(maxHealthCalls), true},
			healthv1.Health_List_FullMethodName:     {slots(maxHealthCalls), true},
			healthv1.Health_Watch_FullMethodName:    {slots(maxHealthCalls), false},

			reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {slots(maxReflections), true},
			reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {slots(maxReflections), true},
		},
	}
}

// begin counts a call until its context ends. gRPC calls it when the headers of the call
// have arrived.
func (l *limits) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	called, known := l.methods[info.FullMethodName]
	if !known {
		return ctx, nil // gRPC refuses it at once
	}
	if err := l.take(called, info.FullMethodName); err != nil {
		l.metrics.refusedCalls.Inc()
		return nil, err
	}
	c := &call{brief: called.brief}
	if p, ok := peer.FromContext(ctx); ok {
		if held, ok := p.AuthInfo.(heldBy); ok {
			c.timer = time.AfterFunc(l.timeout, func() { _ = held.conn.Close() })
		}
	}
	context.AfterFunc(ctx, func() {
		c.stopTimer()
		<-called.slots
		<-l.all
	})
	return context.WithValue(ctx, callKey{}, c), nil
}

func (l *limits) take(called method, name string) error {
	select {
	case l.all <- struct{}{}:
	default:
		return status.Errorf(codes.ResourceExhausted, "too many calls: this server takes %d at a time", cap(l.all))
	}
	select {
	case called.slots <- struct{}{}:
		return nil
	default:
		<-l.all
		return status.Errorf(codes.ResourceExhausted, "too many calls of %s: this server takes %d at a time", name, cap(called.slots))
	}
}

// call is a call that is counted.
type call struct {
	brief bool
	timer *time.Timer // closes the connection
}

type callKey struct{}

// requestReceived notes that the client has sent the request of a call.
func requestReceived(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && !c.brief {
		c.stopTimer()
	}
}

func (c *call) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

func noteUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	requestReceived(ctx)
	return handler(ctx, request)
}

func noteStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(server, notingStream{stream})
}

// notingStream is a stream that notes when the request has been received.
type notingStream struct{ grpc.ServerStream }

// RecvMsg implements [grpc.ServerStream].
func (s notingStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		requestReceived(s.Context())
	}
	return err
}

// plaintext are credentials that encrypt nothing and make the connection known to its
// calls.
type plaintext struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (plaintext) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, heldBy{conn}, nil
}

// Clone implements [credentials.TransportCredentials].
func (p plaintext) Clone() credentials.TransportCredentials {
	return plaintext{p.TransportCredentials.Clone()}
}

// heldBy is the connection of a call.
type heldBy struct{ conn net.Conn }

// AuthType implements [credentials.AuthInfo].
func (heldBy) AuthType() string { return "none" }
