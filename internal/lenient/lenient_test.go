package lenient_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each byte that is not UTF-8, at any depth, becomes U+FFFD; all else stays. FuzzText of package cri
// compares what is refused.
func TestUnmarshal(t *testing.T) {
	newer := protowire.AppendBytes(protowire.AppendTag(nil, 9999, protowire.BytesType), []byte("\xfe")) // a field of a newer runtime
	message := func(mark string) *runtimeapi.ContainerStatus {
		m := &runtimeapi.ContainerStatus{
			Id: "a" + mark + "b", Metadata: &runtimeapi.ContainerMetadata{Name: mark, Attempt: 7}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
			CreatedAt: 5, Labels: map[string]string{"key" + mark: mark + "value", "other": "text"},
			User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{SupplementalGroups: []int64{200, 7000}}},
		}
		m.ProtoReflect().SetUnknown(newer)
		return m
	}
	for mark, replaced := range map[string]bool{"?": false, "\xff": true} {
		raw, err := proto.Marshal(message("?"))
		kit.Must(t, err)
		raw = bytes.ReplaceAll(raw, []byte("?"), []byte(mark))
		var got runtimeapi.ContainerStatus
		was, err := lenient.Unmarshal(raw, &got)
		want := message(map[bool]string{false: mark, true: "\uFFFD"}[replaced])
		if err != nil || was != replaced || !proto.Equal(&got, want) {
			t.Errorf("with %q: %v, replaced %t, %v; want %v", mark, &got, was, err, want)
		}
		if was, err := lenient.Unmarshal(raw[:len(raw)-1], &got); err == nil || was {
			t.Errorf("a part of the message with %q: replaced %t, %v, want an error", mark, was, err)
		}
	}
	bad := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("\xff"))
	for number, content := range map[protowire.Number]string{2: "\x0a", 1: "\xff"} { // the metadata ends early, the groups within a number
		var m proto.Message = new(runtimeapi.ContainerStatus)
		if number == 1 {
			m, number = new(runtimeapi.LinuxContainerUser), 3
		}
		raw := protowire.AppendBytes(protowire.AppendTag(bad, number, protowire.BytesType), []byte(content))
		if was, err := lenient.Unmarshal(raw, m); err == nil || was {
			t.Errorf("%q of %T: replaced %t, %v, want an error", content, m, was, err)
		}
	}
}
