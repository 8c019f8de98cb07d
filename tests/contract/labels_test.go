package contract_test

import (
	"fmt"
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

// If the labels of a pod never become known, a subscriber with a selector is told that
// there was something.
func TestContractSelectorWithoutLabels(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		v := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=a"}, Bookmarks: true})
		kit.Relist(1)
		f.setAsListed("web/a", "c=running")
		kit.Relist(1)
		if got := v.Events(); slices.ContainsFunc(got, func(ev pleg.Event) bool { return ev.Type != pleg.Bookmark }) {
			f.Errorf("while the labels may still come: %s, want nothing", plegtest.Words(got...))
		}
		f.setAsListed("web/b", "d=running /t=running")
		kit.Relist(3)
		got := v.Events()
		i := slices.IndexFunc(got, func(ev pleg.Event) bool { return ev.Type == pleg.PodSync })
		if i < 0 || got[i].PodUID != "web/a" || got[i].Missed != 1 {
			f.Errorf("got %+v, want a PodSync of web/a for one event", got)
		}
		if last := got[len(got)-1]; last.Type != pleg.Bookmark || last.Seq < 3 {
			f.Errorf("the last event is %+v, want a bookmark after all events", last)
		}
	})
}

// A subscriber that waits for labels is bounded by its buffer, and delays nobody else.
func TestContractSelectorWaitsWithinItsBuffer(t *testing.T) {
	const pods, buffer = 20, 5
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		kit.Relist(1)
		other := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=p1"}})
		v := f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod"}, Buffer: buffer})
		plain := f.subscribe(pipeline.SubscribeOptions{})
		for i := range pods {
			f.setAsListed(pleg.PodUID(fmt.Sprintf("web/p%d", i)), "c=running")
		}
		kit.Relist(1)
		if n := len(plain.Events()); n != pods {
			f.Errorf("a subscriber without a selector got %d events, want %d at once", n, pods)
		}
		var told uint64
		for _, ev := range v.Events() {
			if ev.Type != pleg.PodSync {
				f.Errorf("before the labels are known: %+v", ev)
			}
			told += ev.Missed
		}
		if told < pods-buffer {
			f.Errorf("told of %d events, want %d or more: the buffer has room for %d", told, pods-buffer, buffer)
		}
		for i := range pods {
			f.setAsListed(pleg.PodUID(fmt.Sprintf("web/p%d", i)), "c=running /s=running")
		}
		kit.Relist(1)
		if got := plegtest.Words(other.Events()...); got != "Started(c) Started(/s)" {
			f.Errorf("another subscriber got %s, want the events of its pod", got)
		}
	})
}
