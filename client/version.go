package client

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// everyServer is the number of the last field of a request that every server knows, also a server
// that does not report its fields. Only tests change it.
var everyServer protoreflect.FieldNumber = 13

// knows returns an error if the server does not know a field of the request, which it would ignore. It
// asks the server only if the request contains a field that not every server knows.
func (l *link) knows(ctx context.Context, request *plegv1.WatchRequest) error {
	var newer []string
	request.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if f.Number() > everyServer {
			newer = append(newer, string(f.Name()))
		}
		return true
	})
	if newer == nil {
		return nil
	}
	answer, err := l.pleg.GetStatus(ctx, &plegv1.GetStatusRequest{})
	if err != nil {
		return l.callError("version of the server", err)
	}
	for _, name := range newer {
		if !slices.Contains(answer.GetWatchFields(), name) {
			s := status.Newf(codes.InvalidArgument, "the daemon (version %q) does not know %s", answer.GetVersion(), name)
			return &callError{s, []error{pleg.ErrInvalidOption}}
		}
	}
	return nil
}
