package contract_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var filters = []struct {
	name   string
	filter pipeline.SubscribeOptions
	want   map[pleg.PodUID]string
}{
	{"none", pipeline.SubscribeOptions{}, map[pleg.PodUID]string{
		"red/a": "Started(ca) Started(/sa) Died(ca) Removed(ca) Died(/sa) Removed(/sa)",
		"red/b": "Started(cb) Started(/sb) Died(cb)", "blue/a": "Started(cd) Died(/sd)",
	}},
	{"types", pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}}}, map[pleg.PodUID]string{
		"red/a": "Died(ca) Removed(ca) Died(/sa) Removed(/sa)", "red/b": "Died(cb)", "blue/a": "Died(/sd)",
	}},
	{"namespaces", pipeline.SubscribeOptions{Filter: pleg.Filter{Namespaces: []string{"blue", "green"}}}, map[pleg.PodUID]string{
		"blue/a": "Started(cd) Died(/sd)",
	}},
	{"pods", pipeline.SubscribeOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"red/b", "none"}}}, map[pleg.PodUID]string{
		"red/b": "Started(cb) Started(/sb) Died(cb)",
	}},
	// The label of a removed pod is still known.
	{"selector", pipeline.SubscribeOptions{Filter: pleg.Filter{Selector: "pod in (a), pod != c"}}, map[pleg.PodUID]string{
		"red/a": "Started(ca) Started(/sa) Died(ca) Removed(ca) Died(/sa) Removed(/sa)", "blue/a": "Started(cd) Died(/sd)",
	}},
	{"no sandboxes", pipeline.SubscribeOptions{Filter: pleg.Filter{OmitSandboxes: true}}, map[pleg.PodUID]string{
		"red/a": "Started(ca) Died(ca) Removed(ca)", "red/b": "Started(cb) Died(cb)", "blue/a": "Started(cd)",
	}},
	{"network events", pipeline.SubscribeOptions{
		Filter: pleg.Filter{NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}},
	}, map[pleg.PodUID]string{
		"red/a": "NetworkSetupCompleted(/sa)", "red/b": "NetworkSetupCompleted(/sb)", "blue/a": "NetworkFailed(/sd)",
	}},
	{"several at once", pipeline.SubscribeOptions{
		Filter: pleg.Filter{Namespaces: []string{"red"}, Selector: "pod=b", OmitSandboxes: true, Types: []pleg.EventType{pleg.ContainerDied}},
	}, map[pleg.PodUID]string{"red/b": "Died(cb)"}},
}

// A filter lets through exactly what it says: live, replayed and from the history.
func TestContractFilters(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		var live, resumed []subscriber
		for _, tt := range filters {
			live = append(live, f.subscribe(tt.filter))
		}
		f.liveInNamespaces()
		for _, tt := range filters {
			tt.filter.After = pleg.Position{Epoch: f.Epoch()}
			resumed = append(resumed, f.subscribe(tt.filter))
		}
		for i, tt := range filters {
			history, _, _ := f.untilSynced(resumed[i].Events())
			for way, events := range map[string][]pleg.Event{"live": live[i].Events(), "from the history": history} {
				got := kit.WordsByPod(events)
				for _, uid := range []pleg.PodUID{"red/a", "red/b", "blue/a"} {
					if got[uid] != tt.want[uid] {
						f.Errorf("%s, %s: pod %s: %q, want %q", tt.name, way, uid, got[uid], tt.want[uid])
					}
				}
			}
		}
		f.replayFiltered()
	})
}

func (f *fixture) liveInNamespaces() {
	f.Runtime.Set("red/a", "ca=running /sa=running")
	f.Runtime.Set("red/b", "cb=running /sb=running")
	f.Runtime.Set("blue/a", "cd=running /sd=exited")
	kit.Relist(1)
	f.Runtime.Set("red/a", "ca=exited /sa=running")
	kit.Relist(1)
	f.Runtime.Set("red/a", "")
	f.Runtime.Set("red/b", "cb=exited /sb=running")
	kit.Relist(1)
}

func (f *fixture) replayFiltered() {
	v := f.subscribe(pipeline.SubscribeOptions{Replay: true, Filter: pleg.Filter{Selector: "pod=b", OmitSandboxes: true}})
	replayed, _, _ := f.untilSynced(v.Events())
	if got := plegtest.Words(replayed...); got != "Died(cb)" {
		f.Errorf("filtered replay: %s, want Died(cb)", got)
	}
	if ev := replayed[0]; ev.ExitCode == nil || *ev.ExitCode != 3 || ev.Reason != "Error" {
		f.Errorf("replayed %+v, want exit code 3 and the reason Error", ev)
	}
}

// Events that a filter drops take no room in the buffer, so none is missed because of
// them.
func TestContractFiltersBeforeTheBuffer(t *testing.T) {
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{Buffer: 2, Filter: pleg.Filter{Namespaces: []string{"rare"}}})
		if err != nil {
			f.Fatal(err)
		}
		defer sub.Close()
		f.Runtime.Set("rare/pod", "c=running")
		f.live(2 * len(podLife))
		f.Runtime.Set("rare/pod", "c=exited")
		f.live(2)
		got := []pleg.Event{<-sub.Events(), <-sub.Events()}
		if plegtest.Words(got...) != "Started(c) Died(c)" {
			f.Errorf("got %+v", got)
		}
	})
}

// An error about bad options names the option.
func TestContractBadFiltersAreRefused(t *testing.T) {
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		for _, tt := range []struct {
			options pipeline.SubscribeOptions
			names   string
		}{
			{pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.Synced}}}, "Types"},
			{pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerChanged}}}, "Types"},
			{pipeline.SubscribeOptions{After: pleg.Position{Seq: 475}}, "After has no epoch, so its number 475 may be that of another pipeline"},
		} {
			if _, err := f.Subscribe(tt.options); err == nil || !strings.Contains(err.Error(), tt.names) {
				f.Errorf("Subscribe(%+v) = %v, want an error that names %s", tt.options, err, tt.names)
			}
		}
		time.Sleep(time.Second)
	})
}

// All ranges over the events until the context ends.
func TestContractAll(t *testing.T) {
	inProcess(t, pipeline.Options{}, func(f *fixture) {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{})
		if err != nil {
			f.Fatal(err)
		}
		f.Runtime.Set("p0", "c1=running c2=running /s=running")
		kit.Relist(1)
		var got []pleg.Event
		for ev := range sub.All(f.Context()) {
			if got = append(got, ev); len(got) == 2 {
				break
			}
		}
		sub.Close()
		got = slices.AppendSeq(got, sub.All(f.Context()))
		if plegtest.Words(got...) != "Started(c1) Started(c2) Started(/s)" {
			f.Errorf("got %s", plegtest.Words(got...))
		}
	})
}
