package recording

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the header begins with. Version changes when older programs could not
// make sense of a file any more.
const (
	formatName    = "pleg-pipeline recording"
	formatVersion = 1
)

// Header is the first line of a recording. It does not name the node.
type Header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Program is the version of the program that has made the recording.
	Program string `json:"program,omitempty"`
	// Began is the time of the first call, of which all others tell their
	// distance.
	Began time.Time `json:"began"`
	// What the runtime says of itself; empty if it was not asked.
	RuntimeName    string `json:"runtimeName,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// Redacted tells that names and all other words have been replaced.
	Redacted bool `json:"redacted"`
}

// The calls that are recorded, as they are named in the file.
const (
	callVersion          = "Version"
	callSandboxes        = "ListPodSandbox"
	callContainers       = "ListContainers"
	callStreamSandboxes  = "StreamPodSandboxes"
	callStreamContainers = "StreamContainers"
	callSandboxStatus    = "PodSandboxStatus"
	callContainerStatus  = "ContainerStatus"
	callEvents           = "GetContainerEvents"
)

// kind tells sandboxes from containers.
type kind int

const (
	sandboxes kind = iota
	containers
	kinds // the number of kinds
)

func (k kind) newItem() proto.Message {
	if k == sandboxes {
		return &runtimeapi.PodSandbox{}
	}
	return &runtimeapi.Container{}
}

func (k kind) newFilter() proto.Message {
	if k == sandboxes {
		return &runtimeapi.PodSandboxFilter{}
	}
	return &runtimeapi.ContainerFilter{}
}

func (k kind) newStatus() proto.Message {
	if k == sandboxes {
		return &runtimeapi.PodSandboxStatusResponse{}
	}
	return &runtimeapi.ContainerStatusResponse{}
}

// listKind returns what a call lists; ok is false if it is no list.
func listKind(call string) (k kind, ok bool) {
	switch call {
	case callSandboxes, callStreamSandboxes:
		return sandboxes, true
	case callContainers, callStreamContainers:
		return containers, true
	}
	return 0, false
}

// statusKind returns what a call tells the status of; ok is false if it tells none.
func statusKind(call string) (k kind, ok bool) {
	switch call {
	case callSandboxStatus:
		return sandboxes, true
	case callContainerStatus:
		return containers, true
	}
	return 0, false
}

// record is a line. Of Same, List, Answer, Error, Pending, Ended and End only
// one is there, but for an Error with Ended; with none of them it tells that a
// stream of events was opened.
type record struct {
	At   offset `json:"at"`
	Took offset `json:"took,omitzero"`
	Call string `json:"call,omitempty"`
	ID   string `json:"id,omitempty"`
	// Filter of a list that is not of everything.
	Filter json.RawMessage `json:"filter,omitempty"`
	// Stream numbers the streams of events from 1.
	Stream  int             `json:"stream,omitempty"`
	Same    bool            `json:"same,omitempty"`
	List    []part          `json:"list,omitzero"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   *failure        `json:"error,omitempty"`
	Pending bool            `json:"pending,omitempty"`
	Ended   bool            `json:"ended,omitempty"`
	End     bool            `json:"end,omitempty"`
}

// part is some of the items of a list: a range of the last list of its kind, as
// first and number, or one that is new.
type part struct {
	Keep *[2]int         `json:"keep,omitempty"`
	Put  json.RawMessage `json:"put,omitempty"`
}

// failure is a gRPC status that is not OK.
type failure struct {
	Code    code   `json:"code"`
	Message string `json:"message,omitempty"`
}

func newFailure(err error) *failure {
	s := status.Convert(err)
	return &failure{Code: code(s.Code()), Message: s.Message()}
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

// offset is a time since the beginning, in a file to the microsecond.
type offset time.Duration

// MarshalText returns it in the form of Go, such as 1.002345s.
func (o offset) MarshalText() ([]byte, error) {
	return []byte(time.Duration(o).Round(time.Microsecond).String()), nil
}

// UnmarshalText reads an offset that is not negative.
func (o *offset) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("negative time %v", d)
	}
	*o = offset(d)
	return nil
}
