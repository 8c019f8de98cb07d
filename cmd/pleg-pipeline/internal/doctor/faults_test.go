package doctor_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestEveryFaultIsNamed examines a runtime with each fault of simulate --fault of a list or a status. The
// verdict must name the cause and the call, and for a fault of one pod, the pod.
func TestEveryFaultIsNamed(t *testing.T) {
	for _, call := range []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"} {
		for _, kind := range []string{"error", "hang", "slow", "malform"} {
			ofPods := []bool{false}
			if strings.HasSuffix(call, "Status") {
				ofPods = append(ofPods, true)
			}
			for _, ofPod := range ofPods {
				name := call + "/" + kind
				if ofPod {
					name += " of one pod"
				}
				kit.Bubble(t, name, func(t *testing.T) { examineFaulty(t, call, kind, ofPod) })
			}
		}
	}
}

func examineFaulty(t *testing.T, call, kind string, ofPod bool) {
	rt := simruntime.New(simruntime.Options{})
	rt.Populate(simruntime.Population{Pods: 10, Containers: 1})
	web := addPod(rt, "web-0", "nginx")
	var uid pleg.PodUID
	if ofPod {
		uid = web.UID
	}
	f := map[string]simruntime.Fault{
		"error":   {Code: codes.Internal},
		"hang":    {Hang: true},
		"slow":    {Latency: 4 * time.Second},
		"malform": {Malform: simruntime.NilMetadata},
	}[kind]
	if kind == "malform" && strings.HasSuffix(call, "Status") {
		f.Malform = simruntime.NilStatus
	}
	f.PodUID, f.RPC = uid, call
	o := serve(t, rt)
	rt.Inject(f)
	if kind == "slow" && ofPod {
		o.Watch = 3500 * time.Millisecond // while the call lasts
	}
	r := doctor.Examine(t.Context(), o)
	cause, severity, evidence := wanted(call, kind, ofPod)
	check(t, r, cause, severity, evidence)
	if ofPod && !strings.Contains(r.Verdict, "shop/web-0") {
		t.Errorf("verdict %q, want it to name the pod", r.Verdict)
	}
}

// wanted returns the first finding for a fault, and a text in its evidence.
func wanted(call, kind string, ofPod bool) (cause verdict.Cause, severity verdict.Severity, evidence string) {
	status := strings.HasSuffix(call, "Status")
	of := map[string]string{"PodSandboxStatus": "PodSandboxStatus", "ContainerStatus": "ContainerStatus of nginx"}[call]
	switch {
	case kind == "error":
		return verdict.RuntimeFails, verdict.Problem, "injected"
	case kind == "malform" && status:
		return verdict.RuntimeFails, verdict.Problem, "cannot be inspected"
	case kind == "malform":
		return verdict.RuntimeFails, verdict.Problem, " has malformed items "
	case kind == "slow" && !status:
		return verdict.RuntimeSlow, verdict.Warning, "the list of all pods takes up to 4.0s"
	case kind == "slow" && ofPod:
		return verdict.SlowContainer, verdict.Warning, "shop/web-0 is slow for at least 3.5s in " + of + "; the other 10 pods answer"
	case kind == "slow":
		return verdict.RuntimeSlow, verdict.Warning, "half of the inspections take 4.0s or longer"
	case ofPod:
		return verdict.HungContainer, verdict.Problem, "shop/web-0 hangs for at least 10s in " + of + "; the other 10 pods answer"
	case status:
		return verdict.RuntimeSlow, verdict.Problem, "11 of 11 pods wait"
	}
	return verdict.RuntimeHangs, verdict.Problem, "the runtime hangs for at least 10s in " + call
}
