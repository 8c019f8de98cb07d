package kit_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

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
