package faults_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
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

// row is a call and the way in which it fails.
type row struct {
	simruntime.Fault
	// from and until are when it holds, after the first call; until the end if until is zero.
	from, until time.Duration
}

// errorCodes are the RPCs of a pipeline, and the codes that each fails with. They include texts
// that have a meaning for a client of Kubernetes or gRPC.
var errorCodes = []struct {
	rpc   string
	codes []codes.Code
}{
	{"ContainerStatus", []codes.Code{codes.Unavailable, codes.NotFound}},
	{"GetContainerEvents", []codes.Code{codes.Unavailable, codes.Unimplemented}},
	{"ListContainers", []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented}},
	{"ListPodSandbox", []codes.Code{codes.Unavailable, codes.Unimplemented}}, // no single sandbox is too large
	{"PodSandboxStatus", []codes.Code{codes.Unavailable, codes.NotFound}},
}

// malforms returns the ways in which the answer of a call can be malformed.
func malforms(call string) []simruntime.Malform {
	all := []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.WrongID}
	switch {
	case call == "GetContainerEvents":
		return append(all, simruntime.NilStatus, simruntime.DuplicateIDs)
	case strings.HasSuffix(call, "Status"):
		return append(all, simruntime.NilStatus)
	case strings.HasSuffix(call, "Containers"):
		return append(all, simruntime.DuplicateIDs, simruntime.OrphanContainers)
	}
	return append(all, simruntime.DuplicateIDs)
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

// rows returns every call with every way in which it can fail.
func rows() (all []row) {
	for _, call := range errorCodes {
		add := func(f simruntime.Fault) {
			f.RPC = call.rpc
			all = append(all, row{Fault: f})
		}
		for _, code := range call.codes {
			add(simruntime.Fault{Code: code})
		}
		add(simruntime.Fault{Hang: true})
		add(simruntime.Fault{}) // slow
		if call.rpc == "GetContainerEvents" {
			add(simruntime.Fault{Messages: 1, Code: codes.Unavailable, Message: "stream broken"})
		}
		for _, malform := range malforms(call.rpc) {
			add(simruntime.Fault{Malform: malform})
		}
	}
	return all
}

func (r row) name() string {
	switch kind := kind(r.Fault); kind {
	case failing:
		return "error=" + r.Code.String()
	case malformed:
		return "malform=" + r.Malform.String()
	default:
		return kind
	}
}

// at returns the fault of one case of the matrix, with its times.
func (r row) at(when string) row {
	f := r
	switch when {
	case once:
		f.After, f.Times = 1, 1
		if f.RPC == "GetContainerEvents" { // the client opens a stream only if one breaks
			f.After, f.from = 0, faultsFrom
		}
	case random:
		f.Probability, f.Seed = 0.6, 7
		fallthrough
	case always:
		f.from, f.until = faultsFrom, faultsUntil
	}
	if kind(f.Fault) == slow {
		f.Latency = 800 * time.Millisecond
	}
	return f
}

// draw returns the fault at random times, with a code, delay or number of messages that is
// drawn too.
func (r row) draw(rng *rand.Rand) row {
	f := r
	part := func(least, most float64) time.Duration {
		share := least + (most-least)*rng.Float64()
		return time.Duration(share * float64(churnEnd)).Round(time.Millisecond)
	}
	f.from = part(0, 0.5)
	f.until = f.from + part(0.1, 0.4)
	switch rng.IntN(3) {
	case 0:
		f.from, f.Times, f.After = 0, 1, rng.IntN(8)
	case 1:
		f.Probability, f.Seed = math.Round(100*(0.1+0.6*rng.Float64()))/100, rng.Uint64()>>32+1
	}
	switch kind(f.Fault) {
	case failing:
		all := []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented}
		f.Code = all[rng.IntN(len(all))]
	case slow:
		f.Latency = time.Duration(10+rng.IntN(1990)) * time.Millisecond
	case truncated:
		f.Messages = 1 + rng.IntN(3)
	}
	return f
}

// modes returns the modes in which the pipeline makes the call.
func (r row) modes() []mode {
	var fit []mode
	for _, m := range modes {
		if m.events != pipeline.EventsOff || r.RPC != "GetContainerEvents" {
			fit = append(fit, m)
		}
	}
	return fit
}

// healthy is what Healthy returns shortly before the fault ends.
func (r row) healthy(when string) health {
	kind := kind(r.Fault)
	switch {
	case when != always:
		return healthyOrNot
	case strings.HasSuffix(r.RPC, "Status") && kind == hanging:
		return healthyOrNot // unhealthy once two pods have waited for the threshold
	case !isList(r.Fault), kind == slow, kind == malformed:
		return healthy
	}
	return unhealthy
}

func isList(f simruntime.Fault) bool {
	return strings.HasPrefix(f.RPC, "List")
}

// promised returns what the pipeline promises about the events of a scenario.
func promised(s scenario) promises.Stream {
	p := promises.Stream{All: s.mode.events != pipeline.EventsOff}
	for _, f := range s.faults {
		switch {
		case f.RPC == "GetContainerEvents":
			p.All = false
		case strings.HasSuffix(f.RPC, "Status"):
			// While the inspections of a pod fail, its changes are merged.
			p.All = p.All && kind(f.Fault) == slow
		case isList(f.Fault) && f.Malform == simruntime.UnknownState:
			p.Repeats = true
		case isList(f.Fault) && f.Malform == simruntime.WrongID:
			p.Lies, p.All = true, false
		}
	}
	return p
}

// drawScenario draws the faults, at least one of them of a call that is made, and
// how the pipeline learns of changes.
func drawScenario(seed uint64) scenario {
	rng := rand.New(rand.NewPCG(seed, 9))
	s := scenario{seed: seed, pods: 1 + rng.IntN(12), containers: 1 + rng.IntN(2), rate: 3, mode: modes[rng.IntN(len(modes))]}
	all := rows()
	made := slices.DeleteFunc(rows(), func(r row) bool { return r.RPC != "ContainerStatus" })
	s.faults = append(s.faults, made[rng.IntN(len(made))].draw(rng))
	for range rng.IntN(5) {
		s.faults = append(s.faults, all[rng.IntN(len(all))].draw(rng))
	}
	return s
}
