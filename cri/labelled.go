package cri

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labelled are the labels and annotations of an id. They are most of what a
// status is to decode, and do not change from one status to the next.
type labelled struct{ labels, annotations map[string]string }

// statusFields are the numbers of the two maps in a status.
type statusFields struct{ labels, annotations protowire.Number }

var (
	sandboxStatusFields   = statusFields{labels: 7, annotations: 8}
	containerStatusFields = statusFields{labels: 12, annotations: 13}
)

// usualLabels are more than most containers have.
const usualLabels = 16

// statusField is the number of the status in the answer to a status call.
const statusField protowire.Number = 1

// decodeContainerStatus decodes an answer as proto.Unmarshal does, but takes
// labels and annotations from last if they are those of the answer.
func decodeContainerStatus(raw []byte, last labelled) (*runtimeapi.ContainerStatus, error) {
	if inner, ok := onlyStatus(raw); ok {
		status := &runtimeapi.ContainerStatus{}
		if rest, ok := containerStatusFields.strip(inner, last); ok && proto.Unmarshal(rest, status) == nil {
			status.Labels, status.Annotations = last.labels, last.annotations
			return status, nil
		}
	}
	var response runtimeapi.ContainerStatusResponse
	err := proto.Unmarshal(raw, &response)
	return response.GetStatus(), err
}

// decodeSandboxStatus is decodeContainerStatus for a sandbox.
func decodeSandboxStatus(raw []byte, last labelled) (*runtimeapi.PodSandboxStatus, error) {
	if inner, ok := onlyStatus(raw); ok {
		status := &runtimeapi.PodSandboxStatus{}
		if rest, ok := sandboxStatusFields.strip(inner, last); ok && proto.Unmarshal(rest, status) == nil {
			status.Labels, status.Annotations = last.labels, last.annotations
			return status, nil
		}
	}
	var response runtimeapi.PodSandboxStatusResponse
	err := proto.Unmarshal(raw, &response)
	return response.GetStatus(), err
}

// onlyStatus returns the status of an answer that has nothing else.
func onlyStatus(raw []byte) (inner []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(raw)
	if n < 0 || num != statusField || typ != protowire.BytesType {
		return nil, false
	}
	inner, size := protowire.ConsumeBytes(raw[n:])
	return inner, size >= 0 && n+size == len(raw)
}

// strip returns a status without its labels and annotations, if these are
// exactly those of last.
func (f statusFields) strip(status []byte, last labelled) (rest []byte, ok bool) {
	if last.labels == nil && last.annotations == nil {
		return nil, false
	}
	rest = make([]byte, 0, restSize)
	var keys [2][usualLabels][]byte // on the stack
	labels, annotations := sameMap{last.labels, keys[0][:0]}, sameMap{last.annotations, keys[1][:0]}
	for len(status) > 0 {
		num, typ, n := protowire.ConsumeTag(status)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(num, typ, status[n:])
		if size < 0 {
			return nil, false
		}
		field, value := status[:n+size], status[n:n+size]
		status = status[n+size:]
		known := true
		switch {
		case typ == protowire.BytesType && num == f.labels:
			known = labels.has(value)
		case typ == protowire.BytesType && num == f.annotations:
			known = annotations.has(value)
		default:
			rest = append(rest, field...)
		}
		if !known {
			return nil, false
		}
	}
	return rest, labels.complete() && annotations.complete()
}

// sameMap finds out whether entries are those of a map that is known.
type sameMap struct {
	last map[string]string
	keys [][]byte
}

// has reports whether an entry, which is preceded by its length, is in the map
// and comes for the first time.
func (m *sameMap) has(value []byte) bool {
	entry, _ := protowire.ConsumeBytes(value)
	key, entry, ok := consumeString(entry, 1)
	if !ok {
		return false
	}
	val, entry, ok := consumeString(entry, 2)
	if !ok || len(entry) > 0 {
		return false
	}
	if known, ok := m.last[string(key)]; !ok || known != string(val) {
		return false
	}
	if slices.ContainsFunc(m.keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
		return false
	}
	m.keys = append(m.keys, key)
	return true
}

func (m *sameMap) complete() bool { return len(m.keys) == len(m.last) }

// consumeString takes the string field with this number off the front.
func consumeString(raw []byte, want protowire.Number) (s, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(raw)
	if n < 0 || num != want || typ != protowire.BytesType {
		return nil, nil, false
	}
	s, size := protowire.ConsumeBytes(raw[n:])
	if size < 0 {
		return nil, nil, false
	}
	return s, raw[n+size:], true
}
