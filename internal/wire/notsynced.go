package wire

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// notSynced distinguishes [pleg.ErrNotSynced] from the other reasons of UNAVAILABLE.
var notSynced = &errdetails.ErrorInfo{Reason: "NOT_SYNCED", Domain: "pleg.v1"}

// NotSynced returns the status of a call that ends with [pleg.ErrNotSynced].
func NotSynced() error {
	s := status.New(codes.Unavailable, pleg.ErrNotSynced.Error())
	if detailed, err := s.WithDetails(notSynced); err == nil {
		s = detailed
	}
	return s.Err()
}

// IsNotSynced reports whether the status is from [NotSynced].
func IsNotSynced(s *status.Status) bool {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == notSynced.GetReason() && info.GetDomain() == notSynced.GetDomain() {
			return true
		}
	}
	return false
}
