package fleet_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// States contains every pod with its status.
func TestStates(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	states := openStates(t, f.server.URL)
	nodes, err := states.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].Name != "node-a" || nodes[0].Agent == "" || nodes[1].Name != f.b.name {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	got := make(map[string][]cache.Entry)
	for pod, err := range states.Pods(t.Context(), nil, nil) {
		kit.Must(t, err)
		got[pod.Node] = append(got[pod.Node], pod.Entry)
	}
	for _, a := range []*agent{f.a, f.b} {
		if diff := a.node.Truth().Diff(got[a.name]); len(diff) > 0 {
			t.Errorf("the states of %s: %q", a.name, diff)
		}
	}
	some := 0
	for pod, err := range states.Pods(t.Context(), []string{f.b.name}, []string{"shop"}) {
		if err != nil || pod.Node != f.b.name || pod.Namespace != "shop" {
			t.Errorf("pod %+v, %v", pod, err)
		}
		some++
	}
	if some == 0 {
		t.Error("no pod of node-b in the namespace shop")
	}
}

func TestWatchRefusesBadOptions(t *testing.T) {
	t.Parallel()
	bad := fleet.Position("7")
	for _, o := range []fleet.WatchOptions{
		{},
		{Cluster: "a b"},
		{Cluster: "c", Nodes: []string{""}},
		{Cluster: "c", Replay: true, After: new(fleet.Position)},
		{Cluster: "c", After: &bad},
		{Cluster: "c", Filter: pleg.Filter{Types: []pleg.EventType{"Nothing"}}},
		{Cluster: "c", Filter: pleg.Filter{Selector: "a in"}},
	} {
		refused := false
		for _, err := range fleet.Watch(t.Context(), nil, o) {
			refused = err != nil
		}
		if !refused {
			t.Errorf("%+v is not refused", o)
		}
	}
}
