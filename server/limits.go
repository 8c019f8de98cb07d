package server

import (
	"context"
	"net"
	"time"

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
	// service at the same time, maxReflections the same for reflection.
	maxHealthCalls = 64
	maxReflections = 8
	// maxRefusedCalls is the number of refused calls after which a connection is closed,
	// because gRPC keeps the context and the timer of each (see observer.TagConn).
	maxRefusedCalls = 256
)

// limits are the calls on all connections together. They are checked before a call costs
// a goroutine. A call counts until gRPC has written its answer, or given it up.
type limits struct {
	all     *places
	methods map[string]method
	timeout time.Duration
	metrics *metrics
}

// method has the limit of one method.
type method struct {
	places *places
	// brief is true for a method whose calls end within the timeout. Other calls must
	// have sent their request by then; after the end of such a call its client has this
	// time again to read the rest. Otherwise the connection is closed.
	brief bool
}

func newLimits(o Options, m *metrics) *limits {
	return &limits{
		all: newPlaces(o.MaxCalls), timeout: answerTimeout, metrics: m,
		methods: map[string]method{
			plegv1.PLEG_Watch_FullMethodName:        {newPlaces(o.MaxCalls), false}, // the handler counts them
			plegv1.PLEG_ListPods_FullMethodName:     {newPlaces(o.MaxLists), true},
			plegv1.PLEG_GetPodStatus_FullMethodName: {newPlaces(o.MaxStatusCalls), false},
			plegv1.PLEG_GetStatus_FullMethodName:    {newPlaces(o.MaxStatusCalls), true},
			plegv1.PLEG_Lookup_FullMethodName:       {newPlaces(o.MaxStatusCalls), false},
			healthv1.Health_Check_FullMethodName:    {newPlaces(maxHealthCalls), true},
			healthv1.Health_List_FullMethodName:     {newPlaces(maxHealthCalls), true},
			healthv1.Health_Watch_FullMethodName:    {newPlaces(maxHealthCalls), false},

			reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {newPlaces(maxReflections), true},
			reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {newPlaces(maxReflections), true},
		},
	}
}

// countCall counts a call. gRPC calls it when the headers of the call have arrived.
func (l *limits) countCall(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := heldConnOf(ctx)
	if conn.refusal != nil {
		return nil, conn.refusal
	}
	called, release, err := l.acquire(conn, info.FullMethodName)
	if err != nil {
		l.metrics.refusedCalls.Inc()
		if conn.refused.Add(1) >= maxRefusedCalls {
			conn.closeNow()
		}
		return nil, err
	}
	return context.WithValue(ctx, callKey{}, newCall(ctx, conn, called.brief, l.timeout, release)), nil
}

// acquire counts a call, and closes the connection of another one that gives up its place.
func (l *limits) acquire(conn *heldConn, name string) (called method, release func(), err error) {
	called, known := l.methods[name]
	if !known {
		return called, nil, status.Errorf(codes.Unimplemented, "there is no method %s", name)
	}
	ofAll, ofMethod := newPlace(conn.process, conn.closeNow), newPlace(conn.process, conn.closeNow)
	release = func() {
		called.places.release(ofMethod)
		l.all.release(ofAll)
	}
	if _, ok := l.all.acquire(ofAll); !ok {
		return called, nil, status.Errorf(codes.ResourceExhausted, "too many calls: this server allows %d at a time", l.all.max)
	}
	if _, ok := called.places.acquire(ofMethod); !ok {
		release()
		return called, nil, status.Errorf(codes.ResourceExhausted, "too many calls of %s: this server allows %d at a time", name, called.places.max)
	}
	return called, release, nil
}

// plaintext are credentials that encrypt nothing and make the connection known to its
// calls.
type plaintext struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (plaintext) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, heldBy{conn.(*heldConn)}, nil // the listener is a gate
}

// Clone implements [credentials.TransportCredentials].
func (p plaintext) Clone() credentials.TransportCredentials {
	return plaintext{p.TransportCredentials.Clone()}
}

// heldBy is the connection of a call.
type heldBy struct{ conn *heldConn }

// heldConnOf returns the connection of a call.
func heldConnOf(ctx context.Context) *heldConn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(heldBy).conn
}

// AuthType implements [credentials.AuthInfo].
func (heldBy) AuthType() string { return "none" }
