package faults_test

import (
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// row is a call and the way in which it is spoiled.
type row struct{ schedule.Fault }

// errorCodes are the errors that each call is tried with. Those of Kubernetes and
// gRPC that mean something to a client are among them.
var errorCodes = map[string][]string{
	"ListPodSandbox":     {"Unavailable", "Unimplemented"}, // no single sandbox is too large
	"ListContainers":     {"Unavailable", "ResourceExhausted", "Unimplemented"},
	"StreamPodSandboxes": {"Unavailable", "ResourceExhausted", "Unimplemented"},
	"StreamContainers":   {"Unavailable", "ResourceExhausted", "Unimplemented"},
	"PodSandboxStatus":   {"Unavailable", "NotFound"},
	"ContainerStatus":    {"Unavailable", "NotFound"},
	"GetContainerEvents": {"Unavailable", "Unimplemented"},
	"Version":            {"Unavailable", "Unimplemented"},
}

// rows returns every call with every kind that it knows.
func rows() []row {
	var all []row
	for _, call := range schedule.Calls() {
		for _, kind := range schedule.Kinds(call) {
			f := schedule.Fault{Call: call, Kind: kind}
			switch kind {
			case schedule.Error:
				for _, f.Code = range errorCodes[call] {
					all = append(all, row{f})
				}
				continue
			case schedule.Malform:
				for _, f.Malform = range schedule.Malforms(call) {
					all = append(all, row{f})
				}
				continue
			case schedule.Truncate:
				f.Messages = 1
			}
			all = append(all, row{f})
		}
	}
	return all
}

func (r row) name() string {
	switch r.Kind {
	case schedule.Error:
		return "error=" + r.Code
	case schedule.Malform:
		return "malform=" + r.Malform
	}
	return string(r.Kind)
}

// onlyEvents reports whether the call is made only if events are followed.
func (r row) onlyEvents() bool { return r.Call == "GetContainerEvents" || r.Call == "WatchEvents" }

// healthy is what Healthy has to say after ten seconds of the fault.
func (r row) healthy(when schedule.When) health {
	if when != schedule.Always {
		return eitherWay
	}
	lists := []string{"ListPodSandbox", "ListContainers", "StreamPodSandboxes", "StreamContainers", "ListPods"}
	switch {
	case !slices.Contains(lists, r.Call):
		return good
	case r.Kind == schedule.Slow, r.Kind == schedule.Malform:
		return good
	case r.Code == "Unimplemented" && strings.HasPrefix(r.Call, "Stream"), r.Code == "ResourceExhausted" && r.Call == "StreamPodSandboxes":
		return good // there is another way
	}
	return bad
}

// promised is what the events have to keep to under the faults of a schedule.
func promised(s *schedule.Schedule, m mode) promise {
	p := promise{all: m.events != pipeline.EventsOff}
	for _, f := range s.Faults {
		list := strings.HasPrefix(f.Call, "List") || strings.HasPrefix(f.Call, "Stream")
		switch {
		case f.Call == "GetContainerEvents", f.Call == "WatchEvents":
			p.all = false
		case strings.HasSuffix(f.Call, "Status"):
			// What happens to a pod while its inspections fail is summed up.
			p.all = p.all && f.Kind == schedule.Slow
		case list && f.Malform == "unknown-state":
			p.repeats = true
		case list && f.Malform == "wrong-id":
			p.lies, p.all = true, false
		}
	}
	return p
}
