// Package rehearse parses the faults of the command simulate.
package rehearse

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// The kinds of faults.
const (
	kindError   = "error"   // The call fails.
	kindHang    = "hang"    // The call does not answer until the fault ends or the client cancels it.
	kindSlow    = "slow"    // The call answers after slowBy.
	kindMalform = "malform" // The answer is malformed.
)

// slowBy is added to calls by a fault of kindSlow.
const slowBy = 2 * time.Second

// rpcs are the RPCs of each call that can fail. A list has two forms, and a fault is in both.
var rpcs = map[string][]string{
	"Version":            {"Version"},
	"ListPodSandbox":     {"ListPodSandbox", "StreamPodSandboxes"},
	"ListContainers":     {"ListContainers", "StreamContainers"},
	"PodSandboxStatus":   {"PodSandboxStatus"},
	"ContainerStatus":    {"ContainerStatus"},
	"GetContainerEvents": {"GetContainerEvents"},
}

// Calls returns the calls that can fail.
func Calls() []string { return slices.Sorted(maps.Keys(rpcs)) }

// Kinds returns the kinds of faults that a call can have.
func Kinds(call string) []string {
	if call == "Version" {
		return []string{kindError, kindHang, kindSlow}
	}
	return []string{kindError, kindHang, kindSlow, kindMalform}
}

// Parse returns the faults for [simruntime.Runtime.Play] that a text describes. The text is
// CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as "ContainerStatus/hang@0s" or
// "ListContainers/error@10s-40s": one of [Calls], one of [Kinds], and the times after the
// first call of a client. Without UNTIL, the fault lasts until Play ends. KIND/once hits one
// call, KIND/random each call with a probability of one half. With a pod, the fault is
// limited to the calls about it.
func Parse(text, podUID string) ([]simruntime.Fault, error) {
	what, when, timed := strings.Cut(text, "@")
	words := strings.Split(what, "/")
	if !timed || len(words) < 2 || len(words) > 3 {
		return nil, fmt.Errorf("fault %q: want CALL/KIND@FROM or CALL/KIND@FROM-UNTIL, such as ContainerStatus/hang@0s", text)
	}
	call, kind := words[0], words[1]
	if rpcs[call] == nil {
		return nil, fmt.Errorf("fault %q: call %q: want one of %s", text, call, strings.Join(Calls(), ", "))
	}
	if !slices.Contains(Kinds(call), kind) {
		return nil, fmt.Errorf("fault %q: kind %q: %s has %s", text, kind, call, strings.Join(Kinds(call), ", "))
	}
	f := newFault(call, kind)
	f.PodUID = podUID
	if len(words) == 3 {
		switch words[2] {
		case "once":
			f.Times = 1
		case "random":
			f.Probability = 0.5
		default:
			return nil, fmt.Errorf("fault %q: %q: want once, random or nothing", text, words[2])
		}
	}
	var err error
	if f.From, f.Until, err = parseTimes(when); err != nil {
		return nil, fmt.Errorf("fault %q: %w", text, err)
	}
	var faults []simruntime.Fault
	for _, f.RPC = range rpcs[call] {
		faults = append(faults, f)
	}
	return faults, nil
}

func newFault(call, kind string) simruntime.Fault {
	switch {
	case kind == kindError:
		return simruntime.Fault{Code: codes.Internal}
	case kind == kindHang:
		return simruntime.Fault{Hang: true}
	case kind == kindSlow:
		return simruntime.Fault{Latency: simruntime.Latency{P50: slowBy}}
	case len(rpcs[call]) > 1: // a list
		return simruntime.Fault{Malform: simruntime.NilMetadata}
	}
	return simruntime.Fault{Malform: simruntime.NilStatus}
}

func parseTimes(text string) (from, until time.Duration, err error) {
	first, last, limited := strings.Cut(text, "-")
	if from, err = time.ParseDuration(first); err != nil || from < 0 {
		return 0, 0, fmt.Errorf("%q is not a time such as 0s or 1m30s", first)
	}
	if !limited {
		return from, 0, nil
	}
	if until, err = time.ParseDuration(last); err != nil || until <= from {
		return 0, 0, fmt.Errorf("%q is not a time after %v", last, from)
	}
	return from, until, nil
}
