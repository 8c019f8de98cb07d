package simruntime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// rehearsedDelay is added to calls by a fault of the kind [FaultSlow] of [ParseFault].
const rehearsedDelay = 2 * time.Second

// rehearsed are the calls of [ParseFault]. A list has two forms, and a fault is in both.
var rehearsed = map[string][]string{
	"Version":            {"Version"},
	"ListPodSandbox":     {"ListPodSandbox", "StreamPodSandboxes"},
	"ListContainers":     {"ListContainers", "StreamContainers"},
	"PodSandboxStatus":   {"PodSandboxStatus"},
	"ContainerStatus":    {"ContainerStatus"},
	"GetContainerEvents": {rpcEvents},
}

// RehearsedCalls returns the calls of [ParseFault].
func RehearsedCalls() []string { return slices.Sorted(maps.Keys(rehearsed)) }

// RehearsedKinds returns the kinds of faults that a call of [ParseFault] can have.
func RehearsedKinds(call string) []string {
	if call == "Version" {
		return []string{FaultError, FaultHang, FaultSlow}
	}
	return []string{FaultError, FaultHang, FaultSlow, FaultMalform}
}

// ParseFault returns the faults for [Runtime.Play] that a text describes. Nothing in them
// is drawn, so that a fault can be rehearsed. The text is CALL/KIND@FROM or
// CALL/KIND@FROM-UNTIL, such as "ContainerStatus/hang@0s" or "ListContainers/error@10s-40s":
// one of [RehearsedCalls], one of [RehearsedKinds], and the times after the first call of
// a client. Without UNTIL, the fault lasts until Play ends. With a pod, the fault is
// limited to the calls about it.
func ParseFault(text, podUID string) ([]Fault, error) {
	what, when, timed := strings.Cut(text, "@")
	call, kind, ok := strings.Cut(what, "/")
	if !ok || !timed {
		return nil, fmt.Errorf("fault %q: want CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as ContainerStatus/hang@0s", text)
	}
	if rehearsed[call] == nil {
		return nil, fmt.Errorf("fault %q: call %q: want one of %s", text, call, strings.Join(RehearsedCalls(), ", "))
	}
	if !slices.Contains(RehearsedKinds(call), kind) {
		return nil, fmt.Errorf("fault %q: kind %q: %s has %s", text, kind, call, strings.Join(RehearsedKinds(call), ", "))
	}
	f := Fault{PodUID: podUID}
	if err := f.parseTimes(when); err != nil {
		return nil, fmt.Errorf("fault %q: %w", text, err)
	}
	f.rehearse(call, kind)
	var faults []Fault
	for _, rpc := range rehearsed[call] {
		f.RPC = rpc
		faults = append(faults, f)
	}
	return faults, nil
}

func (f *Fault) parseTimes(when string) (err error) {
	from, until, limited := strings.Cut(when, "-")
	if f.From, err = time.ParseDuration(from); err != nil || f.From < 0 {
		return fmt.Errorf("%q is not a time such as 0s or 1m30s", from)
	}
	if !limited {
		return nil
	}
	if f.Until, err = time.ParseDuration(until); err != nil || f.Until <= f.From {
		return fmt.Errorf("%q is not a time after %v", until, f.From)
	}
	return nil
}

func (f *Fault) rehearse(call, kind string) {
	switch kind {
	case FaultError:
		f.Code = codes.Internal
	case FaultHang:
		f.Hang = true
	case FaultSlow:
		f.Latency = Latency{P50: rehearsedDelay}
	case FaultMalform:
		f.Malform = NilStatus
		if len(rehearsed[call]) > 1 {
			f.Malform = NilMetadata
		}
	}
}
