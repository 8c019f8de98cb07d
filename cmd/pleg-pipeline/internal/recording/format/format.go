// Package format is the format of a recording: its lines, and the CRI calls that
// it has.
package format

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

// Name and Version start the header. The version grows when older programs cannot read the
// files any more.
const (
	Name    = "pleg-pipeline recording"
	Version = 1
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

// Kind is what a call is about.
type Kind int

// The kinds.
const (
	Sandboxes Kind = iota
	Containers
	Kinds // the number of kinds
)

// Messages are the messages of each kind.
var Messages = [Kinds]struct{ Item, Filter, Status proto.Message }{
	{&cri.PodSandbox{}, &cri.PodSandboxFilter{}, &cri.PodSandboxStatusResponse{}},
	{&cri.Container{}, &cri.ContainerFilter{}, &cri.ContainerStatusResponse{}},
}

// Method is a call that is recorded.
type Method struct {
	Kind           Kind
	List, Status   bool
	Request, Reply proto.Message
}

// NewReply returns an empty answer. The items of all lists have field number 1.
func (m Method) NewReply() proto.Message { return Empty(m.Reply) }

// The calls that are neither lists nor about a status.
const (
	CallVersion = "Version"
	CallEvents  = "GetContainerEvents"
)

// Methods are all calls that are recorded.
var Methods = map[string]Method{
	CallVersion:          {Request: &cri.VersionRequest{}, Reply: &cri.VersionResponse{}},
	CallEvents:           {Request: &cri.GetEventsRequest{}, Reply: &cri.ContainerEventResponse{}},
	"ListPodSandbox":     {Sandboxes, true, false, &cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{}},
	"ListContainers":     {Containers, true, false, &cri.ListContainersRequest{}, &cri.ListContainersResponse{}},
	"StreamPodSandboxes": {Sandboxes, true, false, &cri.StreamPodSandboxesRequest{}, &cri.StreamPodSandboxesResponse{}},
	"StreamContainers":   {Containers, true, false, &cri.StreamContainersRequest{}, &cri.StreamContainersResponse{}},
	"PodSandboxStatus":   {Sandboxes, false, true, &cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{}},
	"ContainerStatus":    {Containers, false, true, &cri.ContainerStatusRequest{}, &cri.ContainerStatusResponse{}},
}

// IsStreamedList reports whether the answer of a call is a streamed list.
func IsStreamedList(call string) bool {
	return call == "StreamPodSandboxes" || call == "StreamContainers"
}

// Empty returns an empty message of the type of m.
func Empty(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// Field returns a field by its name. A message without it has the empty text.
func Field(m proto.Message, name protoreflect.Name) protoreflect.Value {
	fd := m.ProtoReflect().Descriptor().Fields().ByName(name)
	if fd == nil {
		return protoreflect.ValueOfString("")
	}
	return m.ProtoReflect().Get(fd)
}

// ItemsOf returns the items of a list.
func ItemsOf(list proto.Message) protoreflect.List {
	m := list.ProtoReflect()
	return m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
}

// FilterOf returns the filter of a request, or nil if it asks for everything.
func FilterOf(request any) proto.Message {
	if m, ok := request.(proto.Message); ok {
		if f := Field(m, "filter").Message(); f.IsValid() && proto.Size(f.Interface()) > 0 {
			return f.Interface()
		}
	}
	return nil
}

// IDOf returns the id in a request for a status.
func IDOf(k Kind, request any) string {
	return Field(request.(proto.Message), [Kinds]protoreflect.Name{"pod_sandbox_id", "container_id"}[k]).String()
}

// Line is one answer in the file. It has one of Same, List, Answer, Error, Pending, Ended and
// End, or Error with Ended. One without any says that an event stream was opened.
type Line struct {
	At      Offset          `json:"at"`
	Took    Offset          `json:"took,omitzero"`
	Call    string          `json:"call,omitempty"`
	ID      string          `json:"id,omitempty"`
	Filter  json.RawMessage `json:"filter,omitempty"` // of a list
	Stream  int             `json:"stream,omitempty"` // number of an event stream, from 1
	Same    bool            `json:"same,omitempty"`
	List    []Part          `json:"list,omitzero"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   *Failure        `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
	Ended   bool            `json:"ended,omitempty"`
	End     bool            `json:"end,omitempty"`
}

// Part is a part of a list: a range of the last list of its kind, as first and
// number, or one new item.
type Part struct {
	Keep *[2]int         `json:"keep,omitempty"`
	Put  json.RawMessage `json:"put,omitempty"`
}

// Failure is a gRPC status that is not OK.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message,omitempty"`
}

// Err returns the failure as an error.
func (f *Failure) Err() error { return status.Error(codes.Code(f.Code), f.Message) }

// Code is written as its name.
type Code codes.Code

// MarshalText returns the name of a code, such as NotFound.
func (c Code) MarshalText() ([]byte, error) { return []byte(codes.Code(c).String()), nil }

// UnmarshalText reads the name of a code other than OK.
func (c *Code) UnmarshalText(text []byte) error {
	for known := codes.Canceled; known <= codes.Unauthenticated; known++ {
		if known.String() == string(text) {
			*c = Code(known)
			return nil
		}
	}
	return fmt.Errorf("unknown code %q", text)
}

// Offset is a time since the start, in a file with microseconds.
type Offset time.Duration

// MarshalText returns the offset as Go writes it, such as 1.002345s.
func (o Offset) MarshalText() ([]byte, error) {
	return []byte(time.Duration(o).Round(time.Microsecond).String()), nil
}

// UnmarshalText reads an offset that is not negative.
func (o *Offset) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err == nil && d < 0 {
		err = fmt.Errorf("negative time %v", d)
	}
	*o = Offset(d)
	return err
}
