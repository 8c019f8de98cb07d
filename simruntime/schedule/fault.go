package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// Kind is a way to spoil a call.
type Kind string

// The kinds.
const (
	// Error answers with Code.
	Error Kind = "error"
	// Hang does not answer until the fault is lifted or the client gives up.
	Hang Kind = "hang"
	// Slow answers after Delay. A stream of events has each event come so late.
	Slow Kind = "slow"
	// Truncate breaks a stream after a number of Messages.
	Truncate Kind = "truncate"
	// Malform answers what no runtime should, in the way named by Malform. A
	// stream of events is spoiled to its end.
	Malform Kind = "malform"
	// Panic makes a method of the client's pleg.Runtime panic. A simulated
	// runtime cannot do that: [Schedule.Play] leaves it to the client.
	Panic Kind = "panic"
)

// Fault spoils calls of one RPC.
type Fault struct {
	// Call is the name of an RPC of the CRI, or for [Panic] of a method:
	// ListPods, PodStatus, ListPod or WatchEvents.
	Call string `json:"call"`
	Kind Kind   `json:"kind"`
	// Pod, if set, is the only pod whose calls are spoiled.
	Pod string `json:"pod,omitempty"`

	// From and Until bound the time. If Until is zero, the end of the schedule
	// does.
	From  Time `json:"from,omitempty"`
	Until Time `json:"until,omitempty"`
	// After is the number of calls that pass first. Then each is spoiled, or if
	// Probability is not zero each with that one, and Seed determines which;
	// after so many Times, if that is not zero, no more are.
	After       int     `json:"after,omitempty"`
	Times       int     `json:"times,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	Code     string `json:"code,omitempty"`     // Of an Error, such as "Unavailable".
	Delay    Time   `json:"delay,omitempty"`    // Of Slow.
	Messages int    `json:"messages,omitempty"` // Of Truncate, at least 1.
	Malform  string `json:"malform,omitempty"`  // Of Malform, such as "nil-status".
}

// String returns what is spoiled, how and when, as in "ContainerStatus/hang/once".
func (f Fault) String() string { return fmt.Sprintf("%s/%s/%s", f.Call, f.Kind, f.when()) }

func (f Fault) when() When {
	switch {
	case f.Probability > 0:
		return Random
	case f.Times > 0:
		return Once
	}
	return Always
}

// methods are the calls that can panic.
var methods = []string{"ListPods", "PodStatus", "ListPod", "WatchEvents"}

// malforms are the ways in which the answer to a call can be malformed.
var malforms = map[string][]string{
	"ListPodSandbox":     {"nil-metadata", "unknown-state", "duplicate-ids", "wrong-id"},
	"ListContainers":     {"nil-metadata", "unknown-state", "duplicate-ids", "wrong-id", "orphan-containers"},
	"StreamPodSandboxes": {"nil-metadata", "unknown-state", "duplicate-ids", "wrong-id"},
	"StreamContainers":   {"nil-metadata", "unknown-state", "duplicate-ids", "wrong-id", "orphan-containers"},
	"PodSandboxStatus":   {"nil-metadata", "unknown-state", "nil-status", "wrong-id"},
	"ContainerStatus":    {"nil-metadata", "unknown-state", "nil-status", "wrong-id"},
	"GetContainerEvents": {"nil-metadata", "unknown-state", "nil-status", "wrong-id", "duplicate-ids"},
}

var malformOf = map[string]simruntime.Malform{
	"nil-metadata": simruntime.NilMetadata, "unknown-state": simruntime.UnknownState, "nil-status": simruntime.NilStatus,
	"orphan-containers": simruntime.OrphanContainers, "duplicate-ids": simruntime.DuplicateIDs, "wrong-id": simruntime.WrongID,
}

// Calls returns the calls that faults are drawn for: the RPCs that the pipeline
// makes, and the methods that can panic.
func Calls() []string {
	return slices.Concat(slices.Sorted(maps.Keys(malforms)), []string{"Version"}, methods)
}

// Kinds returns the kinds that a call can be spoiled in; nil if it is none of
// [Calls].
func Kinds(call string) []Kind {
	switch {
	case slices.Contains(methods, call):
		return []Kind{Panic}
	case call == "Version":
		return []Kind{Error, Hang, Slow}
	case malforms[call] == nil:
		return nil
	case strings.HasPrefix(call, "Stream"), call == "GetContainerEvents":
		return []Kind{Error, Hang, Slow, Truncate, Malform}
	}
	return []Kind{Error, Hang, Slow, Malform}
}

// Malforms returns the ways in which an answer to the call can be malformed.
func Malforms(call string) []string { return slices.Clone(malforms[call]) }

var codeOf = func() map[string]codes.Code {
	m := make(map[string]codes.Code)
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		m[c.String()] = c
	}
	return m
}()

func (f Fault) validate() error {
	if kinds := Kinds(f.Call); kinds == nil {
		return fmt.Errorf("call %q: want one of %s", f.Call, strings.Join(Calls(), ", "))
	} else if !slices.Contains(kinds, f.Kind) {
		return fmt.Errorf("kind %q: %s knows %v", f.Kind, f.Call, kinds)
	}
	if f.Pod != "" {
		if err := checkPod(f.Pod); err != nil {
			return err
		}
	}
	switch {
	case f.From < 0 || f.Until < 0 || f.Until > 0 && f.Until <= f.From:
		return fmt.Errorf("from %v until %v is no time", f.From, f.Until)
	case f.After < 0 || f.Times < 0:
		return fmt.Errorf("after %d calls, %d times: neither can be negative", f.After, f.Times)
	case !(f.Probability >= 0 && f.Probability <= 1):
		return fmt.Errorf("probability %v is not in [0, 1]", f.Probability)
	}
	return f.validateKind()
}

// validateKind checks what belongs to the kind, and that nothing else is set.
func (f Fault) validateKind() error {
	if code := codeOf[f.Code]; (f.Kind == Error) != (f.Code != "") || f.Code != "" && code == codes.OK {
		return fmt.Errorf("code %q: %s needs an error of gRPC such as Unavailable, no other kind has one", f.Code, Error)
	}
	if (f.Kind == Slow) != (f.Delay != 0) || f.Delay < 0 {
		return fmt.Errorf("delay %v: %s needs one above 0, no other kind has one", f.Delay, Slow)
	}
	if (f.Kind == Truncate) != (f.Messages != 0) || f.Messages < 0 {
		return fmt.Errorf("messages %d: %s needs 1 or more, no other kind has them", f.Messages, Truncate)
	}
	if (f.Kind == Malform) != (f.Malform != "") || f.Malform != "" && !slices.Contains(malforms[f.Call], f.Malform) {
		return fmt.Errorf("malform %q: for %s of %s want one of %v, for other kinds none", f.Malform, Malform, f.Call, malforms[f.Call])
	}
	return nil
}

// rule is the fault in the words of the simulated runtime.
func (f Fault) rule(podUID string) simruntime.Fault {
	r := simruntime.Fault{
		RPC: f.Call, PodUID: podUID, After: f.After, Times: f.Times, Probability: f.Probability, Seed: f.Seed,
		Hang: f.Kind == Hang, Latency: simruntime.Latency{P50: time.Duration(f.Delay)},
		Malform: malformOf[f.Malform], Code: codeOf[f.Code], Messages: f.Messages,
	}
	if f.Kind == Truncate {
		r.Code, r.Message = codes.Unavailable, "stream broken"
	}
	return r
}
