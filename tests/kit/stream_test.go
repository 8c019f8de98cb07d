package kit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventsOf returns events of container c of pod p, numbered from 1.
func eventsOf(types ...pleg.EventType) []pleg.Event {
	var events []pleg.Event
	for i, t := range types {
		events = append(events, pleg.Event{Seq: uint64(i + 1), Type: t, PodUID: "p", ContainerID: "c", ObservedAt: time.Unix(int64(i), 0)})
	}
	return events
}

func with(events []pleg.Event, change func([]pleg.Event)) []pleg.Event {
	change(events)
	return events
}

func truth(state pleg.State) kit.Truth {
	return kit.Truth{"p": {Namespace: "n", Containers: map[pleg.ContainerID]kit.Container{"c": {State: state}}}}
}

const started, died, removed = pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved

var streams = map[string]struct {
	events   []pleg.Event
	end      kit.Truth
	problems int
}{
	"a whole life":                {eventsOf(started, died, removed), kit.Truth{}, 0},
	"short":                       {eventsOf(died, removed), kit.Truth{}, 0},
	"runs":                        {eventsOf(started), truth(pleg.StateRunning), 0},
	"only created":                {nil, truth(pleg.StateCreated), 0},
	"started twice":               {eventsOf(started, started), truth(pleg.StateRunning), 1},
	"died twice":                  {eventsOf(started, died, died), truth(pleg.StateExited), 1},
	"removed twice":               {eventsOf(started, died, removed, removed), kit.Truth{}, 1},
	"started after it died":       {eventsOf(started, died, started), truth(pleg.StateRunning), 1},
	"removed while running":       {eventsOf(started, removed), kit.Truth{}, 1},
	"exit not reported":           {eventsOf(started), truth(pleg.StateExited), 1},
	"start not reported":          {nil, truth(pleg.StateRunning), 1},
	"removal not reported":        {eventsOf(started, died), kit.Truth{}, 1},
	"not subscribed to":           {eventsOf(pleg.NetworkFailed), kit.Truth{}, 1},
	"missed":                      {with(eventsOf(pleg.PodSync), func(e []pleg.Event) { e[0].Missed = 2 }), kit.Truth{}, 1},
	"numbers go back":             {with(eventsOf(started, died), func(e []pleg.Event) { e[1].Seq = 1 }), truth(pleg.StateExited), 1},
	"observed earlier":            {with(eventsOf(started, died), func(e []pleg.Event) { e[1].ObservedAt = time.Unix(-1, 0) }), truth(pleg.StateExited), 1},
	"wrong exit code":             {with(eventsOf(died), func(e []pleg.Event) { code := int32(7); e[0].ExitCode = &code }), truth(pleg.StateExited), 1},
	"replay after a gap":          {eventsOf(started, died, pleg.Gap, died), truth(pleg.StateExited), 0},
	"a bookmark repeats a number": {with(eventsOf(started, pleg.Bookmark), func(e []pleg.Event) { e[1].Seq = 1 }), truth(pleg.StateRunning), 0},
}

func TestStreamCheckFindsProblems(t *testing.T) {
	for name, tt := range streams {
		t.Run(name, func(t *testing.T) {
			var problems []string
			c := kit.NewStreamCheck(kit.Promise{}, func(format string, args ...any) {
				problems = append(problems, fmt.Sprintf(format, args...))
			})
			for _, ev := range tt.events {
				c.Add(ev)
			}
			for range 5 {
				c.Audit(tt.end, nil)
			}
			if len(problems) != tt.problems {
				t.Errorf("problems = %q, want %d", problems, tt.problems)
			}
		})
	}
}

// failures counts the calls of Errorf.
type failures struct {
	testing.TB
	count int
}

func (f *failures) Errorf(string, ...any) { f.count++ }

func (f *failures) Helper() {}

// A history requires every step of a container that still exists, and with All of every
// container.
func TestHistoryFindsMissingEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		lives   []kit.Truth
		events  []pleg.Event
		promise kit.Promise
		want    int
	}{
		"complete":                 {[]kit.Truth{truth(pleg.StateRunning), truth(pleg.StateExited), {}}, eventsOf(started, died, removed), kit.Promise{All: true}, 0},
		"exit missing":             {[]kit.Truth{truth(pleg.StateRunning), truth(pleg.StateExited)}, eventsOf(started), kit.Promise{}, 1},
		"start missing":            {[]kit.Truth{truth(pleg.StateRunning), truth(pleg.StateExited)}, eventsOf(died), kit.Promise{All: true}, 1},
		"unseen":                   {[]kit.Truth{truth(pleg.StateRunning), {}}, nil, kit.Promise{}, 0},
		"unseen, all required":     {[]kit.Truth{truth(pleg.StateRunning), {}}, nil, kit.Promise{All: true}, 1},
		"never existed":            {nil, eventsOf(started), kit.Promise{}, 1},
		"never existed, but a lie": {nil, eventsOf(started), kit.Promise{Lies: true}, 0},
		"repeated":                 {[]kit.Truth{truth(pleg.StateRunning)}, eventsOf(started, started), kit.Promise{}, 1},
		"repeated, allowed":        {[]kit.Truth{truth(pleg.StateRunning)}, eventsOf(started, started), kit.Promise{Repeats: true}, 0},
		"a sync":                   {[]kit.Truth{truth(pleg.StateRunning)}, eventsOf(started, pleg.PodSync), kit.Promise{NoSync: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := kit.NewHistory()
			for _, now := range tt.lives {
				h.Record(now)
			}
			got := &failures{TB: t}
			h.Check(got, tt.events, tt.promise)
			if got.count != tt.want {
				t.Errorf("%d failures, want %d", got.count, tt.want)
			}
		})
	}
}

// A PodSync takes the state from the cache; if the inspection had failed, the next event
// of the pod does.
func TestNodeStateFollowsRepairs(t *testing.T) {
	var status *pleg.PodStatus
	err := errors.New("the inspection failed")
	s := &kit.NodeState{Look: func(pleg.PodUID) (*pleg.PodStatus, error) { return status, err }}
	events := eventsOf(started, pleg.PodSync, pleg.PodSync, removed)
	events[1].Missed = 1
	s.Add(events[0])
	s.Add(events[1])
	if diff := s.Diff(truth(pleg.StateExited)); len(diff) != 1 || s.Repairs != 1 {
		t.Errorf("differences = %q after %d repairs, want that it has exited, and 1", diff, s.Repairs)
	}
	status, err = &pleg.PodStatus{UID: "p", Containers: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited}}}, nil
	s.Add(events[2])
	if diff := s.Diff(truth(pleg.StateExited)); len(diff) != 0 {
		t.Errorf("differences = %q, want none", diff)
	}
	status = &pleg.PodStatus{UID: "p"}
	s.Add(events[3])
	if diff := s.Diff(kit.Truth{}); len(diff) != 0 {
		t.Errorf("differences = %q, want none", diff)
	}
}

func TestNodeStateDiff(t *testing.T) {
	s := &kit.NodeState{}
	s.Add(eventsOf(started)[0])
	for name, tt := range map[string]struct {
		truth kit.Truth
		want  int
	}{
		"equal": {truth(pleg.StateRunning), 0},
		"died":  {truth(pleg.StateExited), 1},
		"gone":  {kit.Truth{}, 1},
	} {
		if diff := s.Diff(tt.truth); len(diff) != tt.want {
			t.Errorf("%s: differences = %q, want %d", name, diff, tt.want)
		}
	}
}

func TestTruthDiffersFromCache(t *testing.T) {
	want := kit.Truth{"p": {Containers: map[pleg.ContainerID]kit.Container{
		"c": {State: pleg.StateExited, Attempt: 1, ExitCode: 3, Reason: "Error"},
		"s": {Sandbox: true, State: pleg.StateRunning, IP: "10.0.0.1"},
	}}}
	known := func() []cache.Entry {
		return []cache.Entry{{UID: "p", Status: &pleg.PodStatus{
			Containers: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited, Attempt: 1, ExitCode: 3, Reason: "Error"}},
			Sandboxes:  []*pleg.SandboxStatus{{ID: "s", Ready: true, IPs: []string{"10.0.0.1", "fd00::1"}}},
		}}}
	}
	for name, test := range map[string]struct {
		change func(*cache.Entry)
		lines  int
	}{
		"equal":             {func(*cache.Entry) {}, 0},
		"exit code":         {func(p *cache.Entry) { p.Status.Containers[0].ExitCode = 4 }, 1},
		"reason":            {func(p *cache.Entry) { p.Status.Containers[0].Reason = "" }, 1},
		"address":           {func(p *cache.Entry) { p.Status.Sandboxes[0].IPs = nil }, 1},
		"sandbox":           {func(p *cache.Entry) { p.Status.Sandboxes[0].Ready = false }, 1},
		"container missing": {func(p *cache.Entry) { p.Status.Containers = nil }, 1},
		"another id":        {func(p *cache.Entry) { p.Status.Containers[0].ID = "d" }, 2},
		"error":             {func(p *cache.Entry) { p.Err = errors.New("the inspection failed") }, 1},
		"another pod":       {func(p *cache.Entry) { p.UID = "q" }, 2},
	} {
		pods := known()
		test.change(&pods[0])
		if diff := want.Diff(pods); len(diff) != test.lines {
			t.Errorf("%s: differences = %q, want %d", name, diff, test.lines)
		}
	}
}
