// Package recording writes the answers of a container runtime to a file, and
// answers CRI calls from it. The dial options of a [Recorder] tap a gRPC client; a
// [Server] replays the [Recording] that [Open] reads.
//
// The file has lines of JSON; [Create] compresses it if its name ends in .gz. The
// first line is the header, each other line one answer: when the call was made, how
// long it took, its name, and the answer in protojson or the error. A list refers
// to the list before: the ranges it keeps, and its new items. An answer equal to
// the last one to the same question is only "same". A call without an answer for a
// second is written as pending; its answer may follow in a later line. No line
// refers to a later one, so a truncated file is readable up to the last whole line.
//
// The clock of a replay starts with the first call. The server answers lists in
// their recorded order: while a list that differs from the one before has not
// been asked for, time stands still for all later answers. So a client sees the
// same changes whenever it lists. A status is never older than the state in the
// list before it. While a client follows CRI events, they determine the order, and
// lists show what was known at that time: the last list, and what events and
// single-pod lists have shown since.
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

// They start the header. The version grows when older programs cannot read the
// files any more.
const (
	formatName    = "pleg-pipeline recording"
	formatVersion = 1
)

// Header is the first line of a recording. It does not name the node.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Program is the version of the program that made the recording.
	Program string `json:"program,omitempty"`
	// Began is the time of the first call. All other times count from it.
	Began time.Time `json:"began"`
	// The runtime's name and version; empty if the client did not ask for them.
	RuntimeName    string `json:"runtimeName,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	Redacted       bool   `json:"redacted"`
}

// kind is what a call is about.
type kind int

const (
	sandboxes kind = iota
	containers
	kinds // the number of kinds
)

// messages are the messages of each kind, and the field with the id in a request
// for a status.
var messages = [kinds]struct {
	item, filter, status proto.Message
	id                   protoreflect.Name
}{
	{&cri.PodSandbox{}, &cri.PodSandboxFilter{}, &cri.PodSandboxStatusResponse{}, "pod_sandbox_id"},
	{&cri.Container{}, &cri.ContainerFilter{}, &cri.ContainerStatusResponse{}, "container_id"},
}

// method is a call that is recorded.
type method struct {
	kind                   kind
	list, streamed, status bool // streamed of a list
	request, reply         proto.Message
}

const (
	callVersion = "Version"
	callEvents  = "GetContainerEvents"
)

// methods are all calls that are recorded.
var methods = map[string]method{
	callVersion:          {request: &cri.VersionRequest{}, reply: &cri.VersionResponse{}},
	callEvents:           {request: &cri.GetEventsRequest{}, reply: &cri.ContainerEventResponse{}},
	"ListPodSandbox":     {sandboxes, true, false, false, &cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{}},
	"ListContainers":     {containers, true, false, false, &cri.ListContainersRequest{}, &cri.ListContainersResponse{}},
	"StreamPodSandboxes": {sandboxes, true, true, false, &cri.StreamPodSandboxesRequest{}, &cri.StreamPodSandboxesResponse{}},
	"StreamContainers":   {containers, true, true, false, &cri.StreamContainersRequest{}, &cri.StreamContainersResponse{}},
	"PodSandboxStatus":   {sandboxes, false, false, true, &cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{}},
	"ContainerStatus":    {containers, false, false, true, &cri.ContainerStatusRequest{}, &cri.ContainerStatusResponse{}},
}

// empty returns an empty message of the type of m.
func empty(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// field returns a field by its name. A message without it has the empty text.
func field(m proto.Message, name protoreflect.Name) protoreflect.Value {
	fd := m.ProtoReflect().Descriptor().Fields().ByName(name)
	if fd == nil {
		return protoreflect.ValueOfString("")
	}
	return m.ProtoReflect().Get(fd)
}

// itemsOf returns the items of a list, which have field number 1 in all lists.
func itemsOf(list proto.Message) protoreflect.List {
	m := list.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
}

// filterOf returns the filter of a request, or nil if it asks for everything.
func filterOf(request any) proto.Message {
	if m, ok := request.(proto.Message); ok {
		if f := field(m, "filter").Message(); f.IsValid() && proto.Size(f.Interface()) > 0 {
			return f.Interface()
		}
	}
	return nil
}

// line is one answer in the file. It has one of Same, List, Answer, Error, Pending, Ended and
// End, or Error with Ended. One without any says that an event stream was opened.
type line struct {
	At      offset          `json:"at"`
	Took    offset          `json:"took,omitzero"`
	Call    string          `json:"call,omitempty"`
	ID      string          `json:"id,omitempty"`
	Filter  json.RawMessage `json:"filter,omitempty"` // of a list
	Stream  int             `json:"stream,omitempty"` // number of an event stream, from 1
	Same    bool            `json:"same,omitempty"`
	List    []part          `json:"list,omitzero"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   *failure        `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
	Ended   bool            `json:"ended,omitempty"`
	End     bool            `json:"end,omitempty"`
}

// part is a part of a list: a range of the last list of its kind, as first and
// number, or one new item.
type part struct {
	Keep *[2]int         `json:"keep,omitempty"`
	Put  json.RawMessage `json:"put,omitempty"`
}

// failure is a gRPC status that is not OK. Its code is a name, such as NotFound.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// status returns the failure as an error.
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
