// Package recording writes the answers of a container runtime to a file, and
// answers CRI calls from it. The dial options of a [Recorder] tap a gRPC client; a
// [Server] replays the [Recording] that [Open] reads.
//
// The file has lines of JSON; [Create] compresses it if its name ends in .gz. The
// first line is the header, each other line one call or one message of an event
// stream: method, request, answer or error, time and duration. Messages are
// protojson. An item of a list that was in the last list of its kind is written as
// its index there. No line refers to a later one, so a truncated file is readable up
// to the last whole line.
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

// They start the header. A program reads this version only.
const (
	formatName    = "pleg-pipeline recording"
	formatVersion = 2
)

// Header is the first line of a recording. It does not name the node.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Program is the version of the program that made the recording.
	Program string `json:"program,omitempty"`
	// Began is the time of the first call. All other times count from it.
	Began    time.Time `json:"began"`
	Redacted bool      `json:"redacted"`
}

// kind is what a call is about.
type kind int

const (
	sandboxes kind = iota
	containers
	kinds // the number of kinds
)

// shape is what a method asks for.
type shape int

const (
	asksVersion shape = iota
	asksEvents
	asksList
	asksStreamedList
	asksStatus
)

// method is a call that is recorded.
type method struct {
	shape          shape
	kind           kind
	request, reply proto.Message
}

const callEvents = "GetContainerEvents"

// methods are all calls that are recorded.
var methods = map[string]method{
	"Version":            {request: &cri.VersionRequest{}, reply: &cri.VersionResponse{}},
	callEvents:           {asksEvents, 0, &cri.GetEventsRequest{}, &cri.ContainerEventResponse{}},
	"ListPodSandbox":     {asksList, sandboxes, &cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{}},
	"ListContainers":     {asksList, containers, &cri.ListContainersRequest{}, &cri.ListContainersResponse{}},
	"StreamPodSandboxes": {asksStreamedList, sandboxes, &cri.StreamPodSandboxesRequest{}, &cri.StreamPodSandboxesResponse{}},
	"StreamContainers":   {asksStreamedList, containers, &cri.StreamContainersRequest{}, &cri.StreamContainersResponse{}},
	"PodSandboxStatus":   {asksStatus, sandboxes, &cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{}},
	"ContainerStatus":    {asksStatus, containers, &cri.ContainerStatusRequest{}, &cri.ContainerStatusResponse{}},
}

func (m method) isList() bool { return m.shape == asksList || m.shape == asksStreamedList }

// empty returns an empty message of the type of m.
func empty(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// itemsOf returns the items of a list, which have field number 1 in all lists.
func itemsOf(list proto.Message) protoreflect.List {
	m := list.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
}

// line is a line of the file after the header. It has one of Same, List, Answer, Error,
// Pending, Ended and End, or Error with Ended. One without any says that an event stream
// was opened.
type line struct {
	At      offset          `json:"at"`
	Took    offset          `json:"took,omitzero"`
	Method  string          `json:"method,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	Stream  int             `json:"stream,omitempty"` // number of an event stream, from 1
	Same    bool            `json:"same,omitempty"`   // the list equals the last one of its kind
	// List has the items of a list. A number is the index of the item in the last list
	// of its kind that did not fail and had no filter.
	List    []json.RawMessage `json:"list,omitzero"`
	Answer  json.RawMessage   `json:"answer,omitempty"`
	Error   *failure          `json:"error,omitempty"`
	Pending bool              `json:"pending,omitempty"`
	Ended   bool              `json:"ended,omitempty"`
	End     bool              `json:"end,omitempty"`
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
