// Package recording writes the answers of a container runtime to a file, and
// answers CRI calls from it. The dial options of a [Recorder] tap a gRPC client; a
// [Server] replays the [Recording] that [Open] reads.
//
// The file consists of lines of JSON: the header, and then a line for each call. No line refers to
// a later line, so a truncated file is readable up to the last whole line. docs/recording.md
// explains the format, and how it is replayed.
package recording

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Both are at the start of the header. A program reads only this version.
const (
	formatName    = "pleg-pipeline recording"
	formatVersion = 3
)

// Header is the first line of a recording. It does not name the node.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Program is the version of the program that made the recording.
	Program string `json:"program,omitempty"`
	// Began is the time from which all other times count.
	Began    time.Time `json:"began"`
	Redacted bool      `json:"redacted"`
}

func newHeader(began time.Time, o Options) Header {
	return Header{Format: formatName, Version: formatVersion, Program: o.Program, Began: began.Round(0), Redacted: o.Redact}
}

const (
	listSandboxes  = "ListPodSandbox"
	listContainers = "ListContainers"

	containerStatus = "ContainerStatus"
)

// methods are all calls that are recorded, with the types of the request and the answer.
var methods = map[string]struct{ request, reply proto.Message }{
	"Version":          {&cri.VersionRequest{}, &cri.VersionResponse{}},
	listSandboxes:      {&cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{}},
	listContainers:     {&cri.ListContainersRequest{}, &cri.ListContainersResponse{}},
	"PodSandboxStatus": {&cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{}},
	containerStatus:    {&cri.ContainerStatusRequest{}, &cri.ContainerStatusResponse{}},
}

// kinds are the list methods. The question of a list without a filter is its method alone.
var kinds = map[string]int{listSandboxes: 0, listContainers: 1}

type call struct {
	at, took time.Duration
	method   string
	request  proto.Message // nil if it asks for everything
	raw      []byte        // the answer as it came; only in a recorder
	reply    proto.Message // nil if there is none; only in a replay, and shared by equal lists
	err      error         // a gRPC status
	pending  bool          // without an answer
}

// question identifies a call with its request.
func question(method string, request proto.Message) string {
	return method + wire(request)
}

// wire returns the same text for equal messages, whatever the order of their maps.
func wire(m proto.Message) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // never fails: it was decoded before
	return string(text)
}

// statusQuestion identifies the call for the status of an item of a list.
func statusQuestion(item proto.Message) string {
	switch it := item.(type) {
	case *cri.PodSandbox:
		return question("PodSandboxStatus", &cri.PodSandboxStatusRequest{PodSandboxId: it.GetId()})
	case *cri.Container:
		return question(containerStatus, &cri.ContainerStatusRequest{ContainerId: it.GetId()})
	}
	return ""
}

// podOf returns the UID of the pod of an item of a list, or of the request for the list of a pod.
func podOf(m proto.Message) string {
	switch m := m.(type) {
	case interface{ GetLabels() map[string]string }:
		return m.GetLabels()[labelPodUID]
	case *cri.ListPodSandboxRequest:
		return m.GetFilter().GetLabelSelector()[labelPodUID]
	case *cri.ListContainersRequest:
		return m.GetFilter().GetLabelSelector()[labelPodUID]
	}
	return ""
}

func empty(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// itemsOf returns the items of a list, which are field number 1 in all lists.
func itemsOf(list proto.Message) protoreflect.List {
	m := list.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
}

// line is a line of the file after the header. It contains one of Same, List, Answer, Error,
// Pending, Node and End.
type line struct {
	At      offset          `json:"at"`
	Took    offset          `json:"took,omitzero"`
	Method  string          `json:"method,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	Same    bool            `json:"same,omitempty"` // the list contains the items of the last list of its kind
	// List contains the items of a list. A number is the index of the item in the last list
	// of its kind that did not fail, used no filter and was not the same.
	List    []json.RawMessage `json:"list,omitzero"`
	Answer  json.RawMessage   `json:"answer,omitempty"`
	Error   *failure          `json:"error,omitempty"`
	Pending bool              `json:"pending,omitempty"`
	// Node contains the node's problems from this time on: a pleg.v1 PipelineStatus with nothing else.
	Node json.RawMessage `json:"node,omitempty"`
	End  bool            `json:"end,omitempty"`

	items []*item // the items of a list, from which a [writer] makes Same and List
	size  int     // bytes that no earlier line contains
}

// failure is a gRPC status that is not OK. Its code is a name, such as NotFound.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

func (f *failure) status() (failed, err error) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if code.String() == f.Code {
			return status.Error(code, f.Message), nil
		}
	}
	return nil, fmt.Errorf("unknown code %q", f.Code)
}

// offset is a time since the start, written with microseconds as 1.002345s.
type offset time.Duration

func (o offset) MarshalText() ([]byte, error) {
	return []byte(time.Duration(o).Round(time.Microsecond).String()), nil
}

func (o *offset) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err == nil && d < 0 {
		err = fmt.Errorf("negative time %v", d)
	}
	*o = offset(d)
	return err
}
