package contract_test

import (
	"slices"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// setAsListed sets a pod as CRI lists show it: it has labels only if its sandbox is
// listed too. Without words the pod is gone.
func (f *fixture) setAsListed(uid pleg.PodUID, words string) {
	if words == "" {
		f.Runtime.Remove(uid)
		return
	}
	pod := plegtest.Pod(uid, words)
	if len(pod.Sandboxes) == 0 {
		pod.Labels = nil
	}
	f.Runtime.SetPod(pod)
}

// A subscriber with a selector gets every event of the pods that it selects, in order,
// although some lists have containers of a pod without its sandbox.
func TestContractSelectorLosesNothing(t *testing.T) {
	lives := map[string][]string{
		"the sandbox is listed first":             {"/s=running", "c=running /s=running", "c=exited /s=running", ""},
		"a new pod without its sandbox":           {"c=running", "c=running /s=running", "c=exited /s=running", ""},
		"a new container ended without a sandbox": {"c=running", "c=exited d=running /s=running", ""},
		"a removed pod without its sandbox":       {"c=running /s=running", "c=running", ""},
		"a dead pod without its sandbox":          {"c=exited /s=exited", "c=exited", "c=exited", ""},
		"a sandbox in between":                    {"c=running", "c=running /s=running", "c=running", "c=exited", ""},
	}
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			eachWay(t, pipeline.Options{}, func(f *fixture) {
				all := f.subscribe(pipeline.SubscribeOptions{})
				selected := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=a"}})
				none := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod!=a,pod!=b"}})
				var late []subscriber
				for _, words := range life {
					f.setAsListed("web/a", words)
					f.setAsListed("web/b", words)
					late = append(late, f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=a"}, After: pleg.Position{Epoch: f.Epoch()}}))
					kit.Relist(1)
				}
				late = append(late, f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=a"}, After: pleg.Position{Epoch: f.Epoch()}}))
				kit.Relist(2)
				want := kit.ByPod(all.Events())["web/a"]
				if len(want) < 4 {
					f.Fatalf("only %d events", len(want))
				}
				if got := selected.Events(); !slices.EqualFunc(got, want, promises.Equal) {
					f.Errorf("selected: %s\n\twant %s", plegtest.Words(got...), plegtest.Words(want...))
				}
				if got := none.Events(); len(got) > 0 {
					f.Errorf("a subscriber that selects neither pod got %s", plegtest.Words(got...))
				}
				for i, v := range late {
					got := slices.DeleteFunc(v.Events(), func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
					if !slices.EqualFunc(got, want, promises.Equal) {
						f.Errorf("resumed before list %d: %s\n\twant %s", i+1, plegtest.Words(got...), plegtest.Words(want...))
					}
				}
			})
		})
	}
}
