package contract_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each promise of docs/subscriptions.md that holds whatever fails has its own error.
var (
	errBrokeOrdered   = errors.New("events of a pod come in another order than they were published")
	errBrokeUnique    = errors.New("a number comes twice or goes back, or has another epoch")
	errBrokeComplete  = errors.New("an event is neither delivered nor counted as missed")
	errBrokeSynced    = errors.New("Synced does not come once, between what is replayed and what is live")
	errBrokeBookmarks = errors.New("an event is not newer than the bookmark before it")
	errBrokeFilters   = errors.New("an event comes that the filter drops")
)

// seen is what one subscriber got, and everything that was published.
type seen struct {
	events, published []pleg.Event
	epoch             string
	options           pipeline.SubscribeOptions
}

// promises are in the order of the report.
var promises = []struct {
	err   error
	check func(seen) bool
}{
	{errBrokeOrdered, seen.ordered},
	{errBrokeUnique, seen.unique},
	{errBrokeComplete, seen.complete},
	{errBrokeSynced, seen.synced},
	{errBrokeBookmarks, seen.bookmarks},
	{errBrokeFilters, seen.filtered},
}

// ordered compares each pod's events with those published, of which some may be missing.
func (s seen) ordered() bool {
	published := kit.ByPod(s.published)
	for uid, got := range kit.ByPod(s.events) {
		rest := published[uid]
		for _, ev := range got {
			if ev.PodUID == "" || ev.Missed > 0 || ev.Replayed {
				continue
			}
			for len(rest) > 0 && !kit.EqualEvents(rest[0], ev) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				return false
			}
		}
	}
	return true
}

func (s seen) unique() bool {
	var last uint64
	for _, ev := range s.events {
		if ev.Epoch != s.epoch || ev.Seq < last || ev.Seq == last && ev.PodUID != "" {
			return false
		}
		last = ev.Seq
	}
	return true
}

// complete counts the events after Synced, or all if there is none.
func (s seen) complete() bool {
	from, told := uint64(0), 0
	for _, ev := range s.events {
		if ev.Type == pleg.Synced {
			from, told = ev.Seq, 0
		} else {
			told += eventsBehind(ev)
		}
	}
	want := 0
	for _, ev := range s.published {
		if ev.Seq > from && s.wants(ev) {
			want++
		}
	}
	return told == want
}

func (s seen) synced() bool {
	marks := 0
	for _, ev := range s.events {
		if ev.Type == pleg.Synced {
			marks++
		} else if ev.Replayed && marks > 0 {
			return false
		}
	}
	return marks == 1 || marks == 0 && !s.options.Replay
}

func (s seen) bookmarks() bool {
	var at time.Time
	for _, ev := range s.events {
		switch {
		case ev.Type == pleg.Bookmark:
			at = ev.ObservedAt
		case ev.PodUID != "" && !ev.ObservedAt.After(at):
			return false
		}
	}
	return true
}

func (s seen) filtered() bool {
	for _, ev := range s.events {
		if ev.PodUID != "" && ev.Missed == 0 && !s.wants(ev) {
			return false
		}
	}
	return true
}

func (s seen) wants(ev pleg.Event) bool {
	return len(s.options.Types) == 0 || ev.Type == s.options.Types[0]
}

// contractFaults are what fails while the promises are checked.
var contractFaults = []struct {
	name string
	set  func(*fixture)
	ends func(*fixture)
}{
	{"none", func(*fixture) {}, func(*fixture) {}},
	{"lists fail", listFault(plegtest.Fail(errors.New("no list"))), listFault(nil)},
	{"lists take 0.8 s", listFault(plegtest.Delay(800 * time.Millisecond)), listFault(nil)},
	{"an inspection fails", podFault(plegtest.Fail(errors.New("no status"))), podFault(nil)},
	{"an inspection hangs", podFault(plegtest.Hang), podFault(nil)},
	{"an inspection panics", podFault(plegtest.Panic("no")), podFault(nil)},
}

func listFault(f plegtest.Fault) func(*fixture) {
	return func(x *fixture) { x.Runtime.SetListFault(f) }
}

func podFault(f plegtest.Fault) func(*fixture) {
	return func(x *fixture) { x.Runtime.SetPodFault("p3", f) }
}

// TestContractPromisesUnderFaults checks every promise with every fault, for subscribers
// of several kinds, both ways. It keeps the table in README.md, which it writes if
// UPDATE_GOLDEN is set.
func TestContractPromisesUnderFaults(t *testing.T) {
	table := "| promise broken |"
	for _, fault := range contractFaults {
		table += " " + fault.name + " |"
	}
	table += "\n| --- |" + strings.Repeat(" --- |", len(contractFaults)) + "\n"
	checks := make(map[error]map[string]int)
	for _, p := range promises {
		checks[p.err] = make(map[string]int)
	}
	for _, fault := range contractFaults {
		for _, check := range checkUnderFault(t, fault.name, fault.set, fault.ends) {
			checks[check][fault.name]++
		}
	}
	for _, p := range promises {
		table += "| " + p.err.Error() + " |"
		for _, fault := range contractFaults {
			table += fmt.Sprintf(" %d checks |", checks[p.err][fault.name])
		}
		table += "\n"
	}
	compareTable(t, table)
}

// checkUnderFault returns the errors of the promises that were checked, once for each
// subscriber.
func checkUnderFault(t *testing.T, name string, set, end func(*fixture)) (checked []error) {
	t.Helper()
	run := func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{Buffer: 4000})
		var subscribers []*kit.Subscriber
		var options []pipeline.SubscribeOptions
		join := func(o pipeline.SubscribeOptions) *kit.Subscriber {
			v := f.subscribe(o)
			subscribers, options = append(subscribers, v), append(options, o)
			return v
		}
		join(pipeline.SubscribeOptions{Bookmarks: true})
		join(pipeline.SubscribeOptions{Types: []pleg.EventType{pleg.ContainerDied}})
		slow := join(pipeline.SubscribeOptions{Buffer: 4})
		slow.Pause()
		f.live(3)
		set(f)
		join(pipeline.SubscribeOptions{Replay: true, Bookmarks: true})
		f.live(len(podLife))
		end(f)
		f.live(3)
		slow.Resume()
		kit.Relist(5)
		published := all.Events()
		for i, v := range subscribers {
			s := seen{v.Events(), published, f.Epoch(), options[i]}
			for _, p := range promises {
				if checked = append(checked, p.err); !p.check(s) {
					f.Errorf("%s: subscriber %+v: %v: %s", name, options[i], p.err, plegtest.Words(s.events...))
				}
			}
		}
	}
	t.Run(name, func(t *testing.T) { inProcess(t, pipeline.Options{}, run) })
	return checked
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
