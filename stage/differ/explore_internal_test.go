package differ

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

var explored = flag.Int("differ.runs", 4_000, "number of interleavings that TestExplore tries")

// history is the life of one pod: two containers, its end, and a new pod with its UID. For a moment
// the runtime does not know in which state a container is.
var history = []string{
	"", "a=created /s=running", "a=running /s=running", "a=unknown /s=running", "a=exited b=running /s=running", "b=running /s=running",
	"b=unknown /s=running", "b=exited /s=exited", "", "c=running /t=running",
}

// TestExplore tries interleavings of the pod's life, three lists of all pods, two lists of this
// pod, four CRI events, and inspections that succeed, fail or hang. In any order of inputs, no step of
// a container is reported twice or out of order, the cache is never said to be newer than what it
// has, and in the end each container that a counted answer showed running or exited is reported.
func TestExplore(t *testing.T) {
	for seed := range *explored {
		w := newWorld(uint64(seed))
		w.run()
		if w.err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, w.err, strings.Join(w.trace, "\n"))
		}
	}
}

const explorePod pleg.PodUID = "p"

// world is a runtime, an inspector and a cache around a machine.
type world struct {
	rand  *rand.Rand
	m     machine
	ticks stage.Ticks
	at    int      // in history
	until []uint64 // when each state of the history ended
	asked [2]*answered
	left  [2]int
	hints int

	inFlight *stage.Change
	leaving  []stage.Change
	told     map[pleg.ContainerID][]pleg.EventType
	shown    map[pleg.ContainerID]bool // running or exited, by an answer that counted
	trace    []string
	err      error
}

// answered is a list in progress: when it began, and the state that it will show.
type answered struct {
	began uint64
	state int
}

func newWorld(seed uint64) *world {
	o := Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 2}
	return &world{
		rand: rand.New(rand.NewPCG(seed, 1)), m: newMachine(o), left: [2]int{3, 2}, hints: 4, //nolint:gosec // reproducible
		until: make([]uint64, len(history)), told: make(map[pleg.ContainerID][]pleg.EventType), shown: make(map[pleg.ContainerID]bool),
	}
}

func (w *world) run() {
	for range 200 {
		w.act(w.rand.IntN(7))
	}
	w.at = len(history) - 1
	for range 8 { // in peace
		w.inPeace()
	}
	for c, told := range w.told {
		if _, bad := legal(told); bad {
			w.fail("container %s was told %v", c, told)
		}
	}
	for c, ran := range w.shown {
		told := w.told[c]
		if !ran {
			continue
		}
		want := pleg.ContainerRemoved
		if strings.Contains(history[w.at], string(c)+"=") {
			want = pleg.ContainerStarted
		}
		if len(told) == 0 || told[len(told)-1] != want {
			w.fail("container %s was shown, and told %v", c, told)
		}
	}
}

// inPeace lists all pods and lets everything end well.
func (w *world) inPeace() {
	for kind := range w.asked {
		if w.asked[kind] != nil {
			w.answer(kind)
		}
	}
	w.settleAll()
	w.asked[0] = &answered{w.ticks.Next(), w.at}
	w.answer(0)
	w.settleAll()
}

func (w *world) settleAll() {
	for range 4 {
		w.accept()
		w.end(nil)
		w.leave()
	}
}

func (w *world) act(what int) {
	switch kind := what & 1; {
	case what < 4 && w.asked[kind] != nil:
		if w.rand.IntN(2) == 0 { // it may show any state since it began
			w.asked[kind].state = w.at
		}
		w.answer(kind)
	case what < 4 && w.left[kind] > 0:
		w.left[kind]--
		w.asked[kind] = &answered{w.ticks.Next(), w.at}
	case what == 4 && w.at < len(history)-1:
		w.until[w.at] = w.ticks.Next()
		w.at++
		w.note("the world is %q", history[w.at])
	case what == 5 && w.hints > 0:
		w.hints--
		w.hint()
	case what == 6:
		w.accept()
		w.end([]error{nil, nil, errors.New("failed")}[w.rand.IntN(3)])
		w.leave()
	default:
		w.step(elapsed{})
		w.accept()
	}
}

// hint announces the containers of the present state, or of an earlier state: an event may be late.
func (w *world) hint() {
	each(podOf(history[w.rand.IntN(w.at+1)]), func(c *pleg.Container, sandbox bool) {
		h := pleg.Hint{UID: explorePod, Container: c.ID, Name: "name", State: c.State, PodName: "name-p"}
		if sandbox {
			h.Sandbox = c.ID
		}
		w.step(Announcement{h, w.ticks.Next()})
	})
}

func (w *world) answer(kind int) {
	a := w.asked[kind]
	w.asked[kind] = nil
	asked := stage.Asked{Began: a.began, Answered: w.ticks.Next(), At: time.Unix(int64(a.began), 0)} //nolint:gosec // small
	pod := podOf(history[a.state])
	w.note("list %d that began at %d shows %q", kind, a.began, history[a.state])
	newest := w.m.absent
	if rec := w.m.records[explorePod]; rec != nil {
		newest = rec.asked
	}
	for _, o := range w.m.early {
		if o.Began > newest.Answered {
			newest = o.Asked
		}
	}
	if a.began > newest.Answered {
		each(pod, func(c *pleg.Container, _ bool) { w.shown[c.ID] = w.shown[c.ID] || kindOf(c.State) >= running })
	}
	if kind == 1 {
		w.step(&observation{stage.Observation{Asked: asked, UID: explorePod, Pod: pod}})
		return
	}
	l := stage.Listing{Asked: asked, StreamUp: true}
	if pod != nil {
		l.Pods = []*pleg.Pod{pod}
	}
	w.step(&listing{l})
}

func (w *world) accept() {
	inspect, retry, _ := w.m.next(w.now())
	if inspect == nil {
		inspect = retry
	}
	if w.inFlight != nil || inspect == nil {
		return
	}
	w.note("inspection of %v", plainWords(inspect.Pod))
	w.inFlight = inspect
	w.step(accepted{inspect})
}

func (w *world) end(err error) {
	if w.inFlight == nil {
		return
	}
	c := w.inFlight
	w.inFlight = nil
	w.note("inspection ended: %v", err)
	if err == nil {
		w.tell(c)
	}
	how := stage.Committed
	if w.rand.IntN(8) == 0 {
		how = stage.Contradicted
	}
	if err != nil {
		how = []stage.Ending{stage.Failed, stage.FailedHung}[w.rand.IntN(2)]
	}
	w.step(settle{stage.Settled{UID: c.UID, How: how, Err: err}})
}

func (w *world) leave() {
	if len(w.leaving) == 0 {
		return
	}
	c := w.leaving[0]
	w.leaving = w.leaving[1:]
	w.note("the pod leaves")
	w.tell(&c)
	w.step(settle{stage.Settled{UID: c.UID, How: stage.Committed}})
}

// tell commits a change: the cache has its state, and its events are published.
func (w *world) tell(c *stage.Change) {
	w.claim(c.At, c.Pod)
	for _, ev := range c.Events {
		if ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied || ev.Type == pleg.ContainerRemoved {
			w.told[ev.ContainerID] = append(w.told[ev.ContainerID], ev.Type)
		}
		w.note("  told %s %s", ev.Type, ev.ContainerID)
	}
}

// claim checks that a state was true at a time or later.
func (w *world) claim(at time.Time, pod *pleg.Pod) {
	words := plainWords(pod)
	for n, state := range history[:w.at+1] {
		if same(podOf(state), pod) && (n == w.at || w.until[n] > uint64(at.Unix())) { //nolint:gosec // small
			return
		}
	}
	w.fail("the cache has %q and is said to be as new as %d", words, at.Unix())
}

func (w *world) step(in input) {
	do := w.m.step(in, w.now())
	w.leaving = append(w.leaving, do.leaving...)
	for _, t := range do.touch {
		w.claim(t.at, w.old())
	}
	pending := slices.ContainsFunc(do.pending, func(p *pleg.Pod) bool { return p.UID == explorePod })
	if !do.observe.IsZero() && !pending {
		w.claim(do.observe, w.old())
	}
	for _, c := range do.cancel {
		if c.Gone && w.inFlight != nil {
			w.inFlight = nil
			w.note("inspection superseded")
			w.step(settle{stage.Settled{UID: c.UID, How: stage.Superseded}})
		}
	}
}

func (w *world) old() *pleg.Pod {
	if rec := w.m.records[explorePod]; rec != nil {
		return rec.old
	}
	return nil
}

func (w *world) now() time.Time { return time.Unix(int64(w.ticks.Next()), 0) } //nolint:gosec // small

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// legal reports whether the events of a container came in the order of its life, each step once.
func legal(told []pleg.EventType) (last pleg.EventType, bad bool) {
	order := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	next := 0
	for _, t := range told {
		n := slices.Index(order, t)
		if n < next {
			return t, true
		}
		next, last = n+1, t
	}
	return last, false
}

// podOf returns the pod in the words of a history. "" is no pod.
func podOf(words string) *pleg.Pod {
	if words == "" {
		return nil
	}
	return plegtest.Pod(explorePod, words)
}

// plainWords undoes podOf.
func plainWords(pod *pleg.Pod) string {
	var words []string
	each(pod, func(c *pleg.Container, sandbox bool) {
		id := string(c.ID)
		if sandbox {
			id = "/" + id
		}
		words = append(words, id+"="+c.State.String())
	})
	return strings.Join(words, " ")
}
