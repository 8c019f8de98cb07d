package top

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestKeys drives the view in a terminal emulator.
func TestKeys(t *testing.T) { synctest.Test(t, testKeys) }

func testKeys(t *testing.T) {
	term, s, ended := show(t, of(viewOf("alpha", 1, 1), viewOf("beta", 1, 9), viewOf("gamma", 0, 2)))
	term.wait("healthy")
	term.wait("pods 3")
	if asked := s.asked.Load(); asked == nil || !reflect.DeepEqual(*asked, pleg.SubscribeOptions{Name: "pleg-pipeline-top", Replay: true}) {
		t.Errorf("it asks for the events %+v, want the last one of each container too", asked)
	}
	synctest.Wait()
	s.events <- eventMessage{event: event("alpha", pleg.ContainerStarted)}
	for frame, shown := range []bool{false, true} { // ten frames a second
		time.Sleep(time.Duration(frame) * 100 * time.Millisecond)
		synctest.Wait()
		if text := term.text(); strings.Contains(text, "started   shop/alpha") != shown {
			t.Errorf("frame %d:\n%s", frame, text)
		}
	}

	term.write("/beta") // typed in one go, as over a slow connection
	term.wait("filter: beta")
	term.waitGone("alpha")
	term.write("\r")
	term.wait("s sort")
	term.write("\x1b") // Escape
	term.wait("gamma")

	for _, order := range []string{"events", "name", "restarts", "age", "known", "severity"} {
		term.write("s")
		synctest.Wait() // a key acts at once
		if text := term.text(); !strings.Contains(text, "s sort: "+order) {
			t.Errorf("it does not sort by %s:\n%s", order, text)
		}
	}

	term.write("p")
	term.wait("events: paused, 0 new")
	s.events <- eventMessage{event: event("beta", pleg.ContainerRemoved)}
	term.wait("paused, 1 new")
	term.waitGone("removed   shop/beta")
	term.write("p")
	term.wait("removed   shop/beta")
	term.waitGone("paused")
	term.write("p") // no event has come since
	term.wait("events: paused, 0 new")
	term.write("p")

	_, _ = term.Write([]byte("\x1b[1;1Ha message of the kernel"))
	term.write("\x0c") // Ctrl-L
	term.waitGone("kernel")

	term.write("?")
	term.wait("EV/M are the events")
	term.write("q") // closes the help
	term.wait("LAST EVENT")
	term.write("q")
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestKeysOfATerminal sends the sequences of a terminal.
func TestKeysOfATerminal(t *testing.T) { synctest.Test(t, testKeysOfATerminal) }

func testKeysOfATerminal(t *testing.T) {
	var all []view.Pod
	for n := range 30 {
		all = append(all, viewOf(fmt.Sprintf("pod-%02d", n), 1, 0))
	}
	term, _, _ := show(t, of(all...))
	for _, step := range []struct{ keys, shown, gone string }{
		{"", "pod-00", "pod-29"},
		{"\x1b[B", "pod-01", "pod-00"},             // Down
		{"\x1b[A", "pod-00", "pod-29"},             // Up
		{"\x1b[6~", "pod-12", "pod-11"},            // PgDn
		{"\x1b[5~", "pod-00", "pod-29"},            // PgUp
		{"\x1b[F", "pod-29", "pod-00"},             // End
		{"\x1b[H", "pod-00", "pod-29"},             // Home
		{"/pod-2xx\x7f\x1b[3~", "pod-29", "pod-1"}, // Backspace, Delete
	} {
		term.write(step.keys)
		term.wait(step.shown)
		term.waitGone(step.gone)
	}
}

// TestResize changes the size of the terminal.
func TestResize(t *testing.T) { synctest.Test(t, testResize) }

func testResize(t *testing.T) {
	term, _, _ := show(t, of(viewOf("alpha", 1, 1)))
	term.wait("alpha")
	term.screen.EventQ() <- tcell.NewEventInterrupt(nil) // neither a key nor a size
	for _, size := range []vt.Coord{{X: 120, Y: 40}, {X: 15, Y: 4}, {X: 80, Y: 24}} {
		term.width, term.height = int(size.X), int(size.Y)
		term.SetSize(size)
		if size.X < 20 {
			term.wait("too small")
			continue
		}
		term.wait("alpha")
		term.wait("q quit")
	}
}

// TestLostConnection ends the connection, then shows a Gap.
func TestLostConnection(t *testing.T) { synctest.Test(t, testLostConnection) }

func testLostConnection(t *testing.T) {
	term, s, _ := show(t, of(viewOf("alpha", 1, 1)))
	term.wait("alpha")
	s.events <- eventMessage{err: status.Error(codes.Unavailable, "the server is shutting down")}
	term.wait("DISCONNECTED: the server is shutting down")
	for _, mark := range []pleg.EventType{pleg.Bookmark, pleg.Synced} { // a quiet node sends only marks
		s.events <- eventMessage{event: fleet.Event{Event: pleg.Event{Type: mark}}}
		term.wait("healthy")
		s.events <- eventMessage{err: errors.New("the server is shutting down")}
		term.wait("DISCONNECTED: the server is shutting down")
	}
	s.set(update{err: errors.New("connection refused")})
	s.events <- eventMessage{event: fleet.Event{Event: pleg.Event{Type: pleg.Gap, Reason: "OtherEpoch"}}}
	term.wait("GAP: events are missing")
	term.wait("NO ANSWER: connection refused")
	s.events <- eventMessage{err: errors.New("the server is shutting down")} // which is why
	term.wait("DISCONNECTED: the server is shutting down")
	s.events <- eventMessage{event: fleet.Event{Event: pleg.Event{Type: pleg.Synced}}}
	s.hangs.Store(true)
	time.Sleep(2 * askTimeout)
	term.wait("NO ANSWER: nothing for 5s")
	s.events <- eventMessage{event: event("delta", pleg.ContainerStarted)}
	term.wait("started   shop/delta") // while no answer comes
	s.hangs.Store(false)
	time.Sleep(2 * askTimeout)
	s.set(of(viewOf("beta", 1, 1)))
	term.wait("healthy")
	term.wait("beta")
	term.waitGone("alpha")
	s.set(update{state: State{Status: healthy()}, err: fmt.Errorf("pods: %w", pleg.ErrNotSynced)})
	term.waitGone("beta")
	term.wait("healthy") // the status says what the first list waits for
	s.set(of())
	term.wait("no pods")
}

// TestAsksRarely asks sources: once per interval, or one that is slow for a fifth of the time, one that fails for half of it. A request
// ends after 5 s.
func TestAsksRarely(t *testing.T) {
	failed := errors.New("broken")
	for _, test := range []struct {
		takes time.Duration
		err   error
		asked int
		want  string // the last error
	}{
		{asked: 95, want: "<nil>"},
		{takes: 300 * time.Millisecond, asked: 64, want: "<nil>"},
		{takes: 2 * time.Second, asked: 10, want: "<nil>"},
		{takes: 300 * time.Millisecond, err: failed, asked: 95, want: "broken"},
		{takes: 2 * time.Second, err: failed, asked: 24, want: "broken"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, updates := &source{takes: test.takes}, make(chan update, 100)
			s.set(update{state: State{Status: healthy()}, err: test.err})
			ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second-1)
			defer cancel()
			kit.Must(t, ask(ctx, s, time.Second, updates))
			if n := len(updates); n != test.asked {
				t.Errorf("takes %v, error %v: asked %d times in 95 s, want %d", test.takes, test.err, n, test.asked)
			}
			for range len(updates) - 1 {
				<-updates
			}
			if last := <-updates; fmt.Sprint(last.err) != test.want {
				t.Errorf("takes %v: the last error is %v, want %s", test.takes, last.err, test.want)
			}
		})
	}
}

// A request that hangs ends after 5 s, and says so instead of what the connection says.
func TestAskOnce(t *testing.T) {
	for _, test := range []struct {
		late error
		want string
	}{
		{nil, "nothing for 5s"},
		{status.Error(codes.DeadlineExceeded, "too late"), "nothing for 5s"},
		{errors.New("broken"), "broken"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, began := &source{late: test.late}, time.Now()
			s.hangs.Store(true)
			if u := askOnce(t.Context(), s); u.err == nil || u.err.Error() != test.want || time.Since(began) != 5*time.Second {
				t.Errorf("%v after %v, want %q after 5 s", u.err, time.Since(began), test.want)
			}
		})
	}
}

// TestEnds ends the view by a key and by the source. All other tests end the view by its context, as SIGTERM
// does.
func TestEnds(t *testing.T) {
	failed := errors.New("no attempt can succeed")
	for name, test := range map[string]struct {
		end  func(*terminal, *source)
		want error
	}{
		"Ctrl-C, in the filter too": {func(term *terminal, _ *source) { term.write("/\x03") }, nil},
		"events fail":               {func(_ *terminal, s *source) { s.fail <- failed }, failed},
		"events are cancelled":      {func(_ *terminal, s *source) { s.fail <- fmt.Errorf("read: %w", context.Canceled) }, nil},
		"the terminal is closed":    {func(term *terminal, _ *source) { term.screen.Fini() }, nil},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			term, s, ended := show(t, of())
			term.wait("healthy")
			test.end(term, s)
			if err := <-ended; !errors.Is(err, test.want) {
				t.Errorf("Run() = %v, want %v", err, test.want)
			}
		})
	}
}

// TestCluster shows the pods of two nodes, the second of which is silent.
func TestCluster(t *testing.T) { synctest.Test(t, testCluster) }

func testCluster(t *testing.T) {
	pod, ev := viewOf("alpha", 1, 0), event("alpha", pleg.ContainerStarted)
	pod.Node, ev.Node = "n1", "n1"
	term, s, _ := show(t, update{state: State{Pods: []view.Pod{pod}, Cluster: &Cluster{
		Figures: [][2]string{{"nodes", "2"}}, Problem: "nobody publishes the events of node n2",
	}}})
	s.events <- eventMessage{event: ev}
	for _, want := range []string{"PROBLEM: nobody publishes the events of node n2", "nodes 2", "NODE         NAMESPACE", "n1           shop", "n1 shop/alpha"} {
		term.wait(want)
	}
	term.write("/n2")
	term.wait("no pod matches the filter")
	term.waitGone("n1 shop/alpha")
}
