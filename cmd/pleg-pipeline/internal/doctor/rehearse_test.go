package doctor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/rehearse"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestEveryRehearsedFaultIsNamed examines a runtime with each fault of simulate --fault,
// except those of events, which the doctor does not follow. The verdict must name the call,
// and for a fault of one pod, the pod.
func TestEveryRehearsedFaultIsNamed(t *testing.T) {
	for _, call := range rehearse.Calls() {
		if call == "GetContainerEvents" {
			continue
		}
		for _, kind := range rehearse.Kinds(call) {
			ofPods := []bool{false}
			if strings.HasSuffix(call, "Status") {
				ofPods = append(ofPods, true)
			}
			for _, ofPod := range ofPods {
				name := call + "/" + kind
				if ofPod {
					name += " of one pod"
				}
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { examineFaulty(t, call, kind, ofPod) })
				})
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
	faults, err := rehearse.Parse(call+"/"+kind+"@0s", uid)
	if err != nil {
		t.Fatal(err)
	}
	o := serve(t, rt)
	kit.Run(t, func(ctx context.Context) error { return rt.Play(ctx, faults...) })
	synctest.Wait()
	o.CallTimeout *= 3 // longer than the delay of a slow call
	r := doctor.Examine(t.Context(), o)
	if !strings.Contains(r.Verdict, call) || strings.HasPrefix(r.Verdict, "OK") {
		t.Errorf("verdict %q, want it to name %s", r.Verdict, call)
	}
	if ofPod && !strings.Contains(r.Verdict, "shop/web-0") {
		t.Errorf("verdict %q, want it to name the pod", r.Verdict)
	}
}
