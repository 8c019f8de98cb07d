package faults_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// The kinds of faults.
const (
	failing   = "error"
	hanging   = "hang"
	slow      = "slow"
	truncated = "truncate" // The stream breaks after some messages.
	malformed = "malform"
)

// How often a fault hits.
const (
	once   = "once"
	always = "always"
	random = "random"
)

// calls are the RPCs of a pipeline.
var calls = []string{
	"ContainerStatus", "GetContainerEvents", "ListContainers", "ListPodSandbox", "PodSandboxStatus",
	"StreamContainers", "StreamPodSandboxes", "Version",
}

// malforms returns the ways in which the answer of a call can be malformed.
func malforms(call string) []simruntime.Malform {
	switch {
	case call == "Version":
		return nil
	case call == "GetContainerEvents":
		return []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.NilStatus, simruntime.WrongID, simruntime.DuplicateIDs}
	case strings.HasSuffix(call, "Status"):
		return []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.NilStatus, simruntime.WrongID}
	case strings.HasSuffix(call, "Containers"):
		return []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.DuplicateIDs, simruntime.WrongID, simruntime.OrphanContainers}
	}
	return []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.DuplicateIDs, simruntime.WrongID}
}

// kinds returns the kinds of faults that a call can have.
func kinds(call string) []string {
	switch {
	case call == "Version":
		return []string{failing, hanging, slow}
	case strings.HasPrefix(call, "Stream"), call == "GetContainerEvents":
		return []string{failing, hanging, slow, truncated, malformed}
	}
	return []string{failing, hanging, slow, malformed}
}

// kind returns the kind of a fault: the worst that happens to a call.
func kind(f simruntime.Fault) string {
	switch {
	case f.Malform != 0:
		return malformed
	case f.Hang:
		return hanging
	case f.Messages > 0:
		return truncated
	case f.Code != codes.OK:
		return failing
	}
	return slow
}

// drawFaults returns one fault for each pattern. A pattern is CALL/KIND/WHEN, such as
// "ContainerStatus/hang/once". A * stands for one that is drawn, as are codes, delays, and
// the times within lasting.
func drawFaults(seed uint64, lasting time.Duration, patterns []string) []simruntime.Fault {
	rng := rand.New(rand.NewPCG(seed, 0x7363686564756c65))
	var faults []simruntime.Fault
	for _, pattern := range patterns {
		words := strings.Split(pattern, "/")
		faults = append(faults, drawFault(rng, lasting, words[0], words[1], words[2]))
	}
	return faults
}

func drawFault(rng *rand.Rand, lasting time.Duration, call, kind, when string) simruntime.Fault {
	f := simruntime.Fault{RPC: pick(rng, slices.DeleteFunc(slices.Clone(calls), func(c string) bool {
		return call != "*" && call != c || kind != "*" && !slices.Contains(kinds(c), kind)
	}))}
	if kind == "*" {
		kind = pick(rng, kinds(f.RPC))
	}
	if when == "*" {
		when = pick(rng, []string{once, always, random})
	}
	part := func(least, most float64) time.Duration {
		share := least + (most-least)*rng.Float64()
		return time.Duration(share * float64(lasting)).Round(time.Millisecond)
	}
	f.From = part(0, 0.5)
	f.Until = f.From + max(part(0.1, 0.4), time.Millisecond)
	switch when {
	case once:
		f.From, f.Times, f.After = 0, 1, rng.IntN(8)
	case random:
		f.Probability, f.Seed = math.Round(100*(0.1+0.6*rng.Float64()))/100, rng.Uint64()>>32+1
	}
	switch kind {
	case failing:
		f.Code = pick(rng, []codes.Code{
			codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented,
		})
	case hanging:
		f.Hang = true
	case slow:
		f.Latency = simruntime.Latency{P50: time.Duration(10+rng.IntN(1990)) * time.Millisecond}
	case truncated:
		f.Code, f.Message, f.Messages = codes.Unavailable, "stream broken", 1+rng.IntN(3)
	case malformed:
		f.Malform = pick(rng, malforms(f.RPC))
	}
	return f
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
