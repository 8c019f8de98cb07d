package contract_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestContractPromisesUnderFaults checks every promise with every fault, for subscribers
// of several kinds, in the process and over the socket. It keeps the table in README.md,
// which it writes if UPDATE_GOLDEN is set.
func TestContractPromisesUnderFaults(t *testing.T) {
	table := ""
	for _, p := range promises {
		table += fmt.Sprintf("- **%s**: %v\n", p.name, p.err)
	}
	table += "\n| fault |"
	for _, p := range promises {
		table += " " + p.name + " |"
	}
	table += "\n| --- |" + strings.Repeat(" --- |", len(promises)) + "\n"
	for _, fault := range contractFaults {
		checks := checkUnderFault(t, fault)
		table += "| " + fault.name + " |"
		for _, p := range promises {
			table += fmt.Sprintf(" %d |", checks[p.err])
		}
		table += "\n"
	}
	compareTable(t, table)
}

// checkUnderFault returns for how many subscribers each promise was checked.
func checkUnderFault(t *testing.T, fault contractFault) map[error]int {
	t.Helper()
	var mu sync.Mutex
	checks := make(map[error]int)
	t.Run(fault.name, func(t *testing.T) {
		for name, overSocket := range map[string]bool{"in process": false, "over the socket": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for _, s := range newFaulty(t, fault, overSocket).run() {
						for _, p := range promises {
							if !p.about(s) {
								continue
							}
							if !p.kept(s) {
								t.Errorf("subscriber %+v: %v: %s\n\tearly: %s\n\tstate: %q\n\ttruth: %q", s.options, p.err,
									plegtest.Words(s.events...), plegtest.Words(s.early...), s.state, s.truth)
							}
							mu.Lock()
							checks[p.err]++
							mu.Unlock()
						}
					}
				})
			})
		}
	})
	return checks
}

func newFaulty(t *testing.T, fault contractFault, overSocket bool) *faulty {
	t.Helper()
	runtime := plegtest.New()
	o := pipeline.Options{Runtime: runtime.Basic(), ListTimeout: 2 * time.Second}
	if fault.deliver != nil {
		o.Runtime, o.Events, o.RelistPeriodWithEvents = runtime, pipeline.EventsRequire, 2*time.Second
	}
	f := &faulty{newFixture(t, o), fault}
	f.Runtime = runtime
	if overSocket {
		client := f.serve()
		f.open = func(o pipeline.SubscribeOptions, see func(pleg.Event)) *kit.Subscriber {
			return f.watch(client, o, see)
		}
	}
	return f
}

// watched is a subscriber and what it notices while it reads.
type watched struct {
	*kit.Subscriber
	options pipeline.SubscribeOptions
	state   kit.NodeState
	early   []pleg.Event
}

func (f *faulty) join(o pipeline.SubscribeOptions) *watched {
	w := &watched{options: o, state: kit.NodeState{Look: f.Cache().Get}}
	w.Subscriber = f.open(o, func(ev pleg.Event) {
		w.state.Add(ev)
		// A pod that was removed and is there again has no status before its inspection.
		status, _ := f.Cache().Get(ev.PodUID)
		known := status != nil && !status.ObservedAt.IsZero()
		if ev.PodUID != "" && known && !kit.Fresh(f.Cache(), ev.PodUID, ev.ObservedAt.Add(-1)) {
			w.early = append(w.early, ev)
		}
	})
	return w
}

// run lets pods live before, during and after the fault, while subscribers of all kinds
// join, and returns what each saw. One of them does not read before the pipeline has ended.
func (f *faulty) run() []seen {
	set := f.fault.set
	if set == nil {
		set = func(*faulty, bool) {}
	}
	all := f.subscribeInProcess(pipeline.SubscribeOptions{Buffer: 4000}, nil)
	slow, never := f.join(pipeline.SubscribeOptions{Buffer: 4}), f.subscribeUnread()
	slow.Pause()
	subscribers := []*watched{
		slow, never,
		f.join(pipeline.SubscribeOptions{Bookmarks: true}),
		f.join(pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.ContainerDied}}),
	}
	f.live(3)
	set(f, true)
	subscribers = append(subscribers, f.join(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
	f.live(len(podLife))
	published := all.Events()
	subscribers = append(subscribers,
		f.join(pipeline.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch(), Seq: published[len(published)/2].Seq}}),
		f.join(pipeline.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}}))
	set(f, false)
	f.live(3)
	slow.Resume()
	kit.Relist(5)
	truth, entries := f.truth(), f.Cache().List()
	_ = f.Stop() // kit.Run reports the error
	never.Resume()
	var saw []seen
	for _, w := range subscribers {
		<-w.Done
		saw = append(saw, seen{
			events: w.Events(), published: all.Events(), epoch: f.Epoch(), options: w.options, early: w.early,
			state: w.state.Diff(kit.CachedTruth(entries)), unread: w == never, truth: truth.Diff(entries),
		})
	}
	return saw
}

// subscribeUnread returns a subscriber that does not read. It is in the process: a socket
// has buffers that would read for it.
func (f *faulty) subscribeUnread() *watched {
	w := &watched{options: pipeline.SubscribeOptions{Buffer: 4}}
	w.Subscriber = f.subscribeInProcess(w.options, nil)
	w.Pause()
	return w
}

// truth returns what the runtime has.
func (f *faulty) truth() kit.Truth {
	pods, err := f.Runtime.ListPods(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var entries []cache.Entry
	for _, pod := range pods {
		status, err := f.Runtime.PodStatus(f.Context(), pod, nil)
		if err != nil {
			f.Fatal(err)
		}
		entries = append(entries, cache.Entry{UID: pod.UID, Status: status})
	}
	return kit.CachedTruth(entries)
}

func compareTable(t *testing.T, table string) {
	t.Helper()
	const path, marker = "README.md", "<!-- generated by TestContractPromisesUnderFaults -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, got, _ := strings.Cut(string(text), marker)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(before+marker+table), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != table {
		t.Errorf("%s has the table\n%s\nwant, of what ran (UPDATE_GOLDEN=1 accepts it),\n%s", path, got, table)
	}
}
