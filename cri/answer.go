package cri

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
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

func newAnswerCodec() answerCodec { return answerCodec{encoding.GetCodecV2(grpcproto.Name)} }

// Name is empty so that the calls have the content type of all others.
func (answerCodec) Name() string { return "" }

// Unmarshal keeps data in an *answer.
func (answerCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*answer).encoded = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// container returns the status of what was listed, or nil if it is gone.
func (a answer) container(listed *pleg.Container) (*pleg.ContainerStatus, error) {
	var response runtimeapi.ContainerStatusResponse
	if ok, err := a.decode(&response); !ok || err != nil {
		return nil, err
	}
	if err := verify(response.GetStatus() == nil, response.GetStatus().GetId(), listed.ID); err != nil {
		return nil, err
	}
	return newContainerStatus(response.GetStatus(), listed), nil
}

// sandbox returns the status of what was listed, or nil if it is gone.
func (a answer) sandbox(listed *pleg.Container) (*pleg.SandboxStatus, error) {
	var response runtimeapi.PodSandboxStatusResponse
	if ok, err := a.decode(&response); !ok || err != nil {
		return nil, err
	}
	if err := verify(response.GetStatus() == nil, response.GetStatus().GetId(), listed.ID); err != nil {
		return nil, err
	}
	return newSandboxStatus(response.GetStatus(), listed), nil
}

// decode reports whether there is an answer. It can be called once.
func (a answer) decode(into proto.Message) (bool, error) {
	if a.encoded == nil {
		return false, nil
	}
	defer a.encoded.Free()
	if err := proto.Unmarshal(a.encoded.ReadOnlyData(), into); err != nil {
		return true, fmt.Errorf("malformed answer: %w", err)
	}
	return true, nil
}

// verify rejects an answer that is about nothing or about something else.
func verify(isNil bool, got string, want pleg.ContainerID) error {
	switch {
	case isNil:
		return errNilStatus
	case got != string(want):
		return fmt.Errorf("malformed answer: the status is that of %q", got)
	}
	return nil
}
