package fleet_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Filters apply to the replay and to later events; marks always come.
func TestFilters(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	present, _, _ := f.late().got() // it gets the present state alone
	someone := present[0].PodUID
	tests := []struct {
		name  string
		o     fleet.WatchOptions
		wants func(fleet.Event) bool
	}{
		{"node", fleet.WatchOptions{Nodes: []string{f.b.name}}, func(ev fleet.Event) bool { return ev.Node == f.b.name }},
		{"namespace", fleet.WatchOptions{Filter: pleg.Filter{Namespaces: []string{"jobs"}}}, func(ev fleet.Event) bool { return ev.PodNamespace == "jobs" }},
		{"selector", fleet.WatchOptions{Filter: pleg.Filter{Selector: "app in (shop-app)"}}, func(ev fleet.Event) bool { return ev.PodNamespace == "shop" }},
		{"pod", fleet.WatchOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{someone}}}, func(ev fleet.Event) bool { return ev.PodUID == someone }},
		{"type", fleet.WatchOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied}}}, func(ev fleet.Event) bool { return ev.Type == pleg.ContainerDied }},
		{"no sandboxes", fleet.WatchOptions{Filter: pleg.Filter{OmitSandboxes: true}}, func(ev fleet.Event) bool { return !ev.Sandbox }},
	}
	got := make([][]fleet.Event, len(tests))
	for i, tt := range tests {
		tt.o.Cluster, tt.o.Replay = cluster, true
		js := jetStream(t, connect(t, f.server.URL))
		for ev, err := range fleet.Watch(t.Context(), js, tt.o) {
			kit.Must(t, err)
			if ev.PodUID != "" && !tt.wants(ev) {
				t.Errorf("%s: got %+v", tt.name, ev)
			}
			got[i] = append(got[i], ev)
			if ev.Type == pleg.Synced {
				break
			}
		}
	}
	for i, tt := range tests {
		want := 0
		for _, ev := range present {
			if ev.Replayed && tt.wants(ev) {
				want++
			}
		}
		if len(got[i])-1 != want || want == 0 {
			t.Errorf("%s: %d events, want %d and some", tt.name, len(got[i])-1, want)
		}
	}
}

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
