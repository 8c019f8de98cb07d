package faults_test

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// row is a call and the way in which it fails.
type row struct{ simruntime.Fault }

// errorCodes are the codes that each call fails with. They include those that
// have a meaning for a client of Kubernetes or gRPC.
var errorCodes = map[string][]codes.Code{
	"ListPodSandbox":     {codes.Unavailable, codes.Unimplemented}, // no single sandbox is too large
	"ListContainers":     {codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented},
	"StreamPodSandboxes": {codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented},
	"StreamContainers":   {codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented},
	"PodSandboxStatus":   {codes.Unavailable, codes.NotFound},
	"ContainerStatus":    {codes.Unavailable, codes.NotFound},
	"GetContainerEvents": {codes.Unavailable, codes.Unimplemented},
	"Version":            {codes.Unavailable, codes.Unimplemented},
}

// rows returns every call with every way in which it can fail.
func rows() []row {
	var all []row
	for _, call := range calls {
		for _, kind := range kinds(call) {
			f := simruntime.Fault{RPC: call}
			switch kind {
			case failing:
				for _, f.Code = range errorCodes[call] {
					all = append(all, row{f})
				}
				continue
			case malformed:
				for _, f.Malform = range malforms(call) {
					all = append(all, row{f})
				}
				continue
			case truncated:
				f.Messages, f.Code, f.Message = 1, codes.Unavailable, "stream broken"
			case hanging:
				f.Hang = true
			}
			all = append(all, row{f})
		}
	}
	for _, method := range methods {
		all = append(all, row{simruntime.Fault{RPC: method}})
	}
	return all
}

func (r row) name() string {
	switch kind := kind(r.Fault); {
	case panics(r.Fault):
		return "panic"
	case kind == failing:
		return "error=" + r.Code.String()
	case kind == malformed:
		return "malform=" + r.Malform.String()
	default:
		return kind
	}
}

// at returns the fault of one case, with its times.
func (r row) at(when string, unit time.Duration) simruntime.Fault {
	f := r.Fault
	switch when {
	case once:
		f.After, f.Times = 3, 1
		if f.RPC == "GetContainerEvents" { // the client opens a stream only if one breaks
			f.After, f.From = 0, units(faultsFrom, unit)
		}
	case random:
		f.Probability, f.Seed = 0.6, 7
		fallthrough
	case always:
		f.From, f.Until = units(faultsFrom, unit), units(faultsUntil, unit)
	}
	if !panics(f) && kind(f) == slow {
		f.Latency.P50 = unit * 4 / 5
	}
	return f
}

func units(n float64, unit time.Duration) time.Duration { return time.Duration(n * float64(unit)) }

// modes returns the modes in which the pipeline makes the call.
func (r row) modes() []mode {
	var fit []mode
	for _, m := range modes {
		m.unary = strings.HasPrefix(r.RPC, "List") && !panics(r.Fault)
		if m.events != pipeline.EventsOff || r.RPC != "GetContainerEvents" && r.RPC != "WatchEvents" {
			fit = append(fit, m)
		}
	}
	return fit
}

// healthy is what Healthy returns shortly before the fault ends.
func (r row) healthy(when string) health {
	if when != always {
		return healthyOrNot
	}
	lists := []string{"ListPodSandbox", "ListContainers", "StreamPodSandboxes", "StreamContainers", "ListPods"}
	kind := kind(r.Fault)
	switch {
	case strings.HasSuffix(r.RPC, "Status") && kind == hanging:
		return healthyOrNot // unhealthy once two pods have waited for the threshold
	case !slices.Contains(lists, r.RPC):
		return healthy
	case panics(r.Fault):
		return unhealthy
	case kind == slow, kind == malformed:
		return healthy
	case r.Code == codes.Unimplemented && strings.HasPrefix(r.RPC, "Stream"), r.Code == codes.ResourceExhausted && r.RPC == "StreamPodSandboxes":
		return healthy // the client lists in another way
	}
	return unhealthy
}

// promised returns what the pipeline promises about the events of a scenario.
func promised(s scenario) promises.Stream {
	p := promises.Stream{All: s.mode.events != pipeline.EventsOff}
	for _, f := range s.faults {
		list := strings.HasPrefix(f.RPC, "List") || strings.HasPrefix(f.RPC, "Stream")
		switch {
		case f.RPC == "GetContainerEvents", f.RPC == "WatchEvents":
			p.All = false
		case strings.HasSuffix(f.RPC, "Status"):
			// While the inspections of a pod fail, its changes are merged.
			p.All = p.All && !panics(f) && kind(f) == slow
		case list && f.Malform == simruntime.UnknownState:
			p.Repeats = true
		case list && f.Malform == simruntime.WrongID:
			p.Lies, p.All = true, false
		}
	}
	return p
}
