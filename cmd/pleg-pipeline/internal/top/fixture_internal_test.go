package top

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	time.Local = zone
	goleak.VerifyTestMain(m)
}

// terminal is an emulated terminal with a screen on it.
type terminal struct {
	*testing.T
	vt.MockTerm
	screen        tcell.Screen
	width, height int
}

func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	term := &terminal{T: t, MockTerm: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)}), width: width, height: height}
	screen, err := tcell.NewTerminfoScreenFromTty(term.MockTerm)
	kit.Must(t, err)
	kit.Must(t, screen.Init())
	t.Cleanup(screen.Fini)
	term.screen = screen
	return term
}

// text returns the text on the terminal, without the spaces at the end of lines.
func (t *terminal) text() string {
	var text strings.Builder
	for y := range t.height {
		var line strings.Builder
		for x := range t.width {
			content := t.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C
			if content == "" {
				content = " "
			}
			line.WriteString(content)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

// styles returns a character for the style of each cell: its color or attribute, upper-case if it is bold. The cursor
// is in the last cell if it is hidden.
func (t *terminal) styles() string {
	names := map[tcell.Style]byte{plain: '.', bold: 'B', faint: 'f', good: 'g', good.Bold(true): 'G', warn: 'y', warn.Bold(true): 'Y', bad: 'R', header: 'h'}
	var text strings.Builder
	for y := range t.height {
		for x := range t.width {
			_, style, _ := t.screen.Get(x, y)
			text.WriteByte(names[style])
		}
		text.WriteByte('\n')
	}
	return text.String() + fmt.Sprintf("cursor %+v\n", t.Pos())
}

// wait waits for a second, after which the terminal must show a text.
func (t *terminal) wait(want string) {
	t.Helper()
	time.Sleep(time.Second)
	if text := t.text(); !strings.Contains(text, want) {
		t.Fatalf("the terminal does not show %q:\n%s", want, text)
	}
}

// waitGone waits for a second, after which the terminal must no longer show a text.
func (t *terminal) waitGone(gone string) {
	t.Helper()
	time.Sleep(time.Second)
	if text := t.text(); strings.Contains(text, gone) {
		t.Fatalf("the terminal still shows %q:\n%s", gone, text)
	}
}

// write types a text, as a terminal sends it.
func (t *terminal) write(keys string) { t.SendRaw([]byte(keys)) }

// source is a Source whose answers a test sets.
type source struct {
	answer atomic.Pointer[update]
	asked  atomic.Pointer[pleg.SubscribeOptions] // for events
	hangs  atomic.Bool
	late   error         // of a request that hangs; nil for that of its context
	takes  time.Duration // each answer
	events chan eventMessage
	fail   chan error
}

// set replaces the answer of the next requests.
func (s *source) set(u update) { s.answer.Store(&u) }

func (s *source) State(ctx context.Context) (State, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return State{}, cmp.Or(s.late, ctx.Err())
	}
	time.Sleep(s.takes)
	u := s.answer.Load()
	return u.state, u.err
}

func (s *source) Events(ctx context.Context, o pleg.SubscribeOptions, disconnected Disconnected) iter.Seq2[fleet.Event, error] {
	s.asked.Store(&o)
	return func(yield func(fleet.Event, error) bool) {
		for {
			select {
			case m := <-s.events:
				if m.err != nil {
					disconnected(m.err, 0)
				} else if !yield(m.event, nil) {
					return
				}
			case err := <-s.fail:
				yield(fleet.Event{}, err)
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// show shows an answer in a terminal of 80x24 until the view ends; the test then waits for that.
func show(t *testing.T, u update) (*terminal, *source, <-chan error) {
	t.Helper()
	s := &source{events: make(chan eventMessage, 100), fail: make(chan error)}
	s.set(u)
	term := newTerminal(t, 80, 24)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- Run(ctx, term.screen, s, Options{Interval: time.Second / 2})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	return term, s, ended
}

// noon is a time in the zone of the reader. Events have the same time in UTC.
var (
	zone = time.FixedZone("CEST", 2*60*60)
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, zone)
)

// viewOf returns a pod with one container, which runs unless running is 0.
func viewOf(name string, running int, restarts uint32) view.Pod {
	c := &pleg.ContainerStatus{ID: "c1", Name: "app", Attempt: restarts, State: pleg.StateRunning, StartedAt: noon.Add(-time.Hour)}
	if running == 0 {
		c.State, c.ExitCode, c.Reason, c.FinishedAt = pleg.StateExited, 1, "OOMKilled", noon.Add(-time.Hour)
	}
	status := &pleg.PodStatus{
		UID: pleg.PodUID("uid-" + name), Namespace: "shop", Name: name, IPs: []string{"10.0.0.7"},
		Containers: []*pleg.ContainerStatus{c},
		Sandboxes:  []*pleg.SandboxStatus{{ID: "s1", Ready: true, CreatedAt: noon.Add(-time.Hour)}},
	}
	return view.NewPod(cache.Entry{UID: status.UID, Status: status, Last: status})
}

func event(name string, kind pleg.EventType) fleet.Event {
	return fleet.Event{Event: pleg.Event{Type: kind, PodUID: pleg.PodUID("uid-" + name), PodNamespace: "shop", PodName: name, ContainerName: "app", ContainerID: "c1", ObservedAt: noon.UTC()}}
}

// of returns an answer of a healthy node with these pods.
func of(pods ...view.Pod) update { return update{state: State{Status: healthy(), Pods: pods}} }

func healthy() pleg.Status {
	return pleg.Status{
		At: noon, Endpoint: "unix:///run/s", Healthy: true, Inspectors: 8, InFlight: 1,
		Relist: pleg.RelistStatus{Success: noon.Add(-400 * time.Millisecond), Took: 32400 * time.Microsecond, Period: time.Second},
	}
}
