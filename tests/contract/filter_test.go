package pipeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// A filter lets through exactly what it says, live, replayed and from the
// history alike.
func TestContractFilters(t *testing.T) {
	tests := []struct {
		name   string
		filter pipeline.SubscribeOptions
		want   map[pleg.PodUID]string
	}{
		{"none", pipeline.SubscribeOptions{}, map[pleg.PodUID]string{
			"red/a": "Started(ca) Started(/sa) Died(ca) Removed(ca) Died(/sa) Removed(/sa)",
			"red/b": "Started(cb) Started(/sb) Died(cb)", "blue/a": "Started(cd) Died(/sd)",
		}},
		{"types", pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}}, map[pleg.PodUID]string{
			"red/a": "Died(ca) Removed(ca) Died(/sa) Removed(/sa)", "red/b": "Died(cb)", "blue/a": "Died(/sd)",
		}},
		{"namespaces", pipeline.SubscribeOptions{Namespaces: []string{"blue", "green"}}, map[pleg.PodUID]string{
			"blue/a": "Started(cd) Died(/sd)",
		}},
		{"pods", pipeline.SubscribeOptions{PodUIDs: []pleg.PodUID{"red/b", "none"}}, map[pleg.PodUID]string{
			"red/b": "Started(cb) Started(/sb) Died(cb)",
		}},
		// The label of a pod that is gone is still known.
		{"selector", pipeline.SubscribeOptions{Selector: "pod in (a), pod != c"}, map[pleg.PodUID]string{
			"red/a": "Started(ca) Started(/sa) Died(ca) Removed(ca) Died(/sa) Removed(/sa)", "blue/a": "Started(cd) Died(/sd)",
		}},
		{"no sandboxes", pipeline.SubscribeOptions{OmitSandboxes: true}, map[pleg.PodUID]string{
			"red/a": "Started(ca) Died(ca) Removed(ca)", "red/b": "Started(cb) Died(cb)", "blue/a": "Started(cd)",
		}},
		{"network events", pipeline.SubscribeOptions{
			NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed},
		}, map[pleg.PodUID]string{
			"red/a": "NetworkSetupCompleted(/sa)", "red/b": "NetworkSetupCompleted(/sb)", "blue/a": "NetworkFailed(/sd)",
		}},
		{"several at once", pipeline.SubscribeOptions{
			Namespaces: []string{"red"}, Selector: "pod=b", OmitSandboxes: true, Types: []pleg.EventType{pleg.ContainerDied},
		}, map[pleg.PodUID]string{"red/b": "Died(cb)"}},
	}
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		var live, resumed []*view
		for _, tt := range tests {
			live = append(live, b.subscribe(tt.filter))
		}
		b.liveInColours()
		for _, tt := range tests {
			tt.filter.After = pipeline.Position{Epoch: b.pipe.Epoch()}
			resumed = append(resumed, b.subscribe(tt.filter))
		}
		for i, tt := range tests {
			history, _, _ := b.untilSynced(resumed[i].events())
			for way, events := range map[string][]pleg.Event{"live": live[i].events(), "from the history": history} {
				got := words(events)
				for _, uid := range []pleg.PodUID{"red/a", "red/b", "blue/a"} {
					if got[uid] != tt.want[uid] {
						b.Errorf("%s, %s: pod %s: %q, want %q", tt.name, way, uid, got[uid], tt.want[uid])
					}
				}
			}
		}
		b.replayFiltered()
	})
}

func (b *contractBed) liveInColours() {
	b.node.Set("red/a", "ca=running /sa=running")
	b.node.Set("red/b", "cb=running /sb=running")
	b.node.Set("blue/a", "cd=running /sd=exited")
	b.relist(1)
	b.node.Set("red/a", "ca=exited /sa=running")
	b.relist(1)
	b.node.Set("red/a", "")
	b.node.Set("red/b", "cb=exited /sb=running")
	b.relist(1)
}

func (b *contractBed) replayFiltered() {
	v := b.subscribe(pipeline.SubscribeOptions{Replay: true, Selector: "pod=b", OmitSandboxes: true})
	replayed, _, _ := b.untilSynced(v.events())
	if got := plegtest.Words(replayed...); got != "Died(cb)" {
		b.Errorf("filtered replay: %s, want Died(cb)", got)
	}
	if ev := replayed[0]; ev.ExitCode == nil || *ev.ExitCode != 3 || ev.Reason != "Error" {
		b.Errorf("replayed %+v, want exit code 3 and the reason Error", ev)
	}
}

// What a filter keeps out fills no buffer: however much there is of it, nothing
// is missed.
func TestContractFiltersBeforeTheBuffer(t *testing.T) {
	synctestInProcess(t, func(b *contractBed) {
		sub, err := b.pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 2, Namespaces: []string{"rare"}})
		if err != nil {
			b.Fatal(err)
		}
		defer sub.Close()
		b.node.Set("rare/pod", "c=running")
		b.live(2 * len(contractLife))
		b.node.Set("rare/pod", "c=exited")
		b.live(2)
		got := []pleg.Event{<-sub.Events(), <-sub.Events()}
		if plegtest.Words(got...) != "Started(c) Died(c)" {
			b.Errorf("got %+v", got)
		}
	})
}

// Bad options are refused by name, and cost nobody else anything.
func TestContractFiltersRefused(t *testing.T) {
	synctestInProcess(t, func(b *contractBed) {
		for _, tt := range []struct {
			options pipeline.SubscribeOptions
			names   string
		}{
			{pipeline.SubscribeOptions{Selector: "a in"}, "Selector"},
			{pipeline.SubscribeOptions{Types: []pleg.EventType{"Nothing"}}, "Types"},
			{pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.Synced}}, "Types"},
			{pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.ContainerChanged}}, "Types"},
			{pipeline.SubscribeOptions{Buffer: -1}, "Buffer"},
			{pipeline.SubscribeOptions{Replay: true, After: pipeline.Position{Seq: 1}}, "Replay and After"},
		} {
			if _, err := b.pipe.Subscribe(tt.options); err == nil || !containsWord(err, tt.names) {
				b.Errorf("Subscribe(%+v) = %v, want an error that names %s", tt.options, err, tt.names)
			}
		}
		time.Sleep(time.Second)
	})
}

// Events can be had by ranging, until the context ends.
func TestContractAll(t *testing.T) {
	synctestInProcess(t, func(b *contractBed) {
		sub, err := b.pipe.Subscribe(pipeline.SubscribeOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.node.Set("p0", "c1=running c2=running /s=running")
		b.relist(1)
		var got []pleg.Event
		for ev := range sub.All(b.Context()) {
			if got = append(got, ev); len(got) == 2 {
				break
			}
		}
		sub.Close()
		got = slices.AppendSeq(got, sub.All(b.Context()))
		if plegtest.Words(got...) != "Started(c1) Started(c2) Started(/s)" {
			b.Errorf("got %s", plegtest.Words(got...))
		}
	})
}
