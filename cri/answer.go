package cri

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// answer is that of a status call, as it came. It is decoded once the call has
// given its place back, so that what waits for the place does not wait for this.
// Unset, it is of an id that the runtime does not know.
type answer struct {
	encoded mem.Buffer
}

// answerCodec leaves an *answer encoded. It encodes requests as usual.
type answerCodec struct{ encoding.CodecV2 }

func newAnswerCodec() answerCodec { return answerCodec{encoding.GetCodecV2(proto.Name)} }

// Name is empty so that the calls have the content type of all others.
func (answerCodec) Name() string { return "" }

// Unmarshal keeps data in an *answer.
func (answerCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*answer).encoded = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// container returns the status of what was listed, or nil if it is gone.
func (a answer) container(listed *pleg.Container, last *pleg.ContainerStatus) (*pleg.ContainerStatus, error) {
	if a.encoded == nil {
		return nil, nil
	}
	defer a.encoded.Free()
	var known labelled
	if last != nil {
		known = labelled{last.Labels, last.Annotations}
	}
	st, err := decodeContainerStatus(a.encoded.ReadOnlyData(), known)
	if err := verify(err, st == nil, st.GetId(), listed.ID); err != nil {
		return nil, err
	}
	if !defined(runtimeapi.ContainerState_name, int32(st.GetState())) && listed.State != pleg.StateUnknown {
		return nil, noSuchState(int32(st.GetState()), listed)
	}
	return newContainerStatus(st, listed), nil
}

// sandbox returns the status of what was listed, or nil if it is gone.
func (a answer) sandbox(listed *pleg.Container, last *pleg.SandboxStatus) (*pleg.SandboxStatus, error) {
	if a.encoded == nil {
		return nil, nil
	}
	defer a.encoded.Free()
	var known labelled
	if last != nil {
		known = labelled{last.Labels, last.Annotations}
	}
	st, err := decodeSandboxStatus(a.encoded.ReadOnlyData(), known)
	if err := verify(err, st == nil, st.GetId(), listed.ID); err != nil {
		return nil, err
	}
	if !defined(runtimeapi.PodSandboxState_name, int32(st.GetState())) && listed.State != pleg.StateUnknown {
		return nil, noSuchState(int32(st.GetState()), listed)
	}
	return newSandboxStatus(st, listed), nil
}

// verify rejects an answer that could not be decoded, or is about nothing or
// about something else.
func verify(err error, isNil bool, got string, want pleg.ContainerID) error {
	switch {
	case err != nil:
		return fmt.Errorf("malformed answer: %w", err)
	case isNil:
		return errNilStatus
	case got != string(want):
		return fmt.Errorf("malformed answer: the status is that of %q", got)
	}
	return nil
}

// noSuchState is the error of a status whose state has no name, while that in the
// list has one. It is not believed: nothing would have the pod inspected again once
// the runtime has come to itself. A state that both have may be of a later CRI.
func noSuchState(state int32, listed *pleg.Container) error {
	return fmt.Errorf("malformed answer: there is no state %d, and the list says %v", state, listed.State)
}
