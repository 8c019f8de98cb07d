package doctor_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestEveryFaultIsNamed examines a runtime with each fault of simulate --fault, except faults of
// events, which the doctor does not follow. The verdict must have the cause and name the call, and
// for a fault of one pod, the pod.
func TestEveryFaultIsNamed(t *testing.T) {
	for _, call := range []string{"Version", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"} {
		for _, kind := range []string{"error", "hang", "slow", "malform"} {
			if call == "Version" && kind == "malform" {
				continue // the answer has no field that could be missing
			}
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
	rt := simulate(t, simruntime.Options{})
	populate(t, rt, simruntime.Population{Pods: 10, Containers: 1})
	web := addPod(t, rt, "web-0", "nginx")
	uid := ""
	if ofPod {
		uid = web.UID
	}
	f := map[string]simruntime.Fault{
		"error":   {Code: codes.Internal},
		"hang":    {Hang: true},
		"slow":    {Latency: 2 * time.Second},
		"malform": {Malform: simruntime.NilMetadata},
	}[kind]
	if kind == "malform" && strings.HasSuffix(call, "Status") {
		f.Malform = simruntime.NilStatus
	}
	f.PodUID = uid
	o := serve(t, rt)
	f.RPC = call
	inject(t, rt, f)
	o.CallTimeout *= 3 // longer than the delay of a slow call
	r := doctor.Examine(t.Context(), o)
	cause, severity, evidence := wanted(call, kind, ofPod)
	check(t, r, cause, severity, evidence)
	if !strings.Contains(r.Verdict, call) {
		t.Errorf("verdict %q, want it to name %s", r.Verdict, call)
	}
	if ofPod && !strings.Contains(r.Verdict, "shop/web-0") {
		t.Errorf("verdict %q, want it to name the pod", r.Verdict)
	}
	if ofPod && kind == "hang" {
		container := map[string]string{"ContainerStatus": "nginx"}[call] // a sandbox has none
		if len(r.Hung) != 1 || r.Hung[0].PodUID != uid || r.Hung[0].Pod != "shop/web-0" || r.Hung[0].Container != container {
			t.Errorf("hung %+v, want %s of shop/web-0", r.Hung, call)
		}
	}
}

// wanted returns the first finding for a fault, and what its evidence has.
func wanted(call, kind string, ofPod bool) (cause verdict.Cause, severity verdict.Severity, evidence string) {
	status := strings.HasSuffix(call, "Status")
	switch {
	case kind == "error":
		return verdict.RuntimeFails, verdict.Problem, ": injected"
	case kind == "malform" && status:
		return verdict.RuntimeFails, verdict.Problem, call + " fails: malformed answer: it has no status"
	case kind == "malform":
		return verdict.RuntimeFails, verdict.Problem, call + " has malformed items: "
	case kind == "slow" && ofPod:
		return verdict.SlowContainer, verdict.Warning, call + " "
	case kind == "slow":
		return verdict.RuntimeSlow, verdict.Warning, call + " "
	case ofPod:
		of := map[string]string{"PodSandboxStatus": "sandbox", "ContainerStatus": "nginx"}[call]
		return verdict.HungContainer, verdict.Problem, "1 of 22 status calls do not return within 3s: shop/web-0 " + of + " (" + call
	case status:
		return verdict.RuntimeSlow, verdict.Problem, "11 of 11 " + call + " calls do not return within 3s"
	case call == "Version":
		return verdict.RuntimeHangs, verdict.Problem, "it does not answer within 3s"
	}
	return verdict.RuntimeHangs, verdict.Problem, "1 of 1 " + call + " calls do not return within 3s"
}
