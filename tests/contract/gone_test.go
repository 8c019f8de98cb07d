package contract_test

import (
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A pod that goes before an inspection of it has succeeded is reported by a PodSync, also to
// whoever selects it by its labels.
func TestContractGonePodHasItsLabels(t *testing.T) {
	kit.Bubble(t, "selector", func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		pod := plegtest.Pod("p", "c=running")
		pod.Labels = map[string]string{"app": "web"}
		p.Runtime.SetPod(pod)
		p.Runtime.SetPodFault("p", plegtest.Fail(errInspect))
		sub, err := p.Subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}})
		kit.Must(t, err)
		p.StartBetweenLists(t)
		p.Runtime.Remove("p")
		kit.Relist(1)
		kit.RequireEvents(t, sub.Events(), "p", "PodSync")
	})
}
