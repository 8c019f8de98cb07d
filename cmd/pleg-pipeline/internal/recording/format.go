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

// The start of the header. The version grows when older programs cannot read the
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

// kindMessages are the messages of each kind.
var kindMessages = [kinds]struct{ item, filter, status proto.Message }{
	{&cri.PodSandbox{}, &cri.PodSandboxFilter{}, &cri.PodSandboxStatusResponse{}},
	{&cri.Container{}, &cri.ContainerFilter{}, &cri.ContainerStatusResponse{}},
}

// method is a call that is recorded.
type method struct {
	kind           kind
	list, status   bool
	request, reply proto.Message
}

// answer returns a new answer. The items of all lists have field number 1.
func (m method) answer() proto.Message { return empty(m.reply) }

const (
	callVersion = "Version"
	callEvents  = "GetContainerEvents"
)

var methods = map[string]method{
	callVersion:          {request: &cri.VersionRequest{}, reply: &cri.VersionResponse{}},
	callEvents:           {request: &cri.GetEventsRequest{}, reply: &cri.ContainerEventResponse{}},
	"ListPodSandbox":     {sandboxes, true, false, &cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{}},
	"ListContainers":     {containers, true, false, &cri.ListContainersRequest{}, &cri.ListContainersResponse{}},
	"StreamPodSandboxes": {sandboxes, true, false, &cri.StreamPodSandboxesRequest{}, &cri.StreamPodSandboxesResponse{}},
	"StreamContainers":   {containers, true, false, &cri.StreamContainersRequest{}, &cri.StreamContainersResponse{}},
	"PodSandboxStatus":   {sandboxes, false, true, &cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{}},
	"ContainerStatus":    {containers, false, true, &cri.ContainerStatusRequest{}, &cri.ContainerStatusResponse{}},
}

func isStreamedList(call string) bool {
	return call == "StreamPodSandboxes" || call == "StreamContainers"
}

func empty(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

// field returns a field by its name. A message without it has the empty text.
func field(m proto.Message, name protoreflect.Name) protoreflect.Value {
	fd := m.ProtoReflect().Descriptor().Fields().ByName(name)
	if fd == nil {
		return protoreflect.ValueOfString("")
	}
	return m.ProtoReflect().Get(fd)
}

// itemsOf returns the items of a list.
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

// idOf returns the id in a request for a status.
func idOf(k kind, request any) string {
	return field(request.(proto.Message), [kinds]protoreflect.Name{"pod_sandbox_id", "container_id"}[k]).String()
}

// record is a line. It has one of Same, List, Answer, Error, Pending, Ended and
// End, or Error with Ended. One without any says that an event stream was opened.
type record struct {
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

// failure is a gRPC status that is not OK.
type failure struct {
	Code    code   `json:"code"`
	Message string `json:"message,omitempty"`
}

func (f *failure) err() error { return status.Error(codes.Code(f.Code), f.Message) }

// code is written as its name.
type code codes.Code

// MarshalText returns the name of a code, such as NotFound.
func (c code) MarshalText() ([]byte, error) { return []byte(codes.Code(c).String()), nil }

// UnmarshalText reads the name of a code other than OK.
func (c *code) UnmarshalText(text []byte) error {
	for known := codes.Canceled; known <= codes.Unauthenticated; known++ {
		if known.String() == string(text) {
			*c = code(known)
			return nil
		}
	}
	return fmt.Errorf("unknown code %q", text)
}

// offset is a time since the start, in a file with microseconds.
type offset time.Duration

// MarshalText returns the offset as Go writes it, such as 1.002345s.
func (o offset) MarshalText() ([]byte, error) {
	return []byte(time.Duration(o).Round(time.Microsecond).String()), nil
}

// UnmarshalText reads an offset that is not negative.
func (o *offset) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err == nil && d < 0 {
		err = fmt.Errorf("negative time %v", d)
	}
	*o = offset(d)
	return err
}
