package differ

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const explorePod pleg.PodUID = "p"

// mostStates is the longest history.
const mostStates = 10

// history is the life of one pod, in the words of [plegtest.Pod]; nil is no pod.
type history []*pleg.Pod

func historyOf(states ...string) (h history) {
	for _, words := range states {
		h = append(h, podOf(words))
	}
	return h
}

// budget is the number of each kind of input in a world: lists of all pods, lists of the pod,
// events, inspections that fail or hang, and requests.
type budget struct{ all, one, events, troubles, requests int8 }

// world is a runtime, an inspector and a cache around a machine, for one pod. At each moment its
// choices are the possible next inputs. It is copied by clone, and compared by key.
type world struct {
	m       machine
	history history
	tick    uint64
	now     time.Time
	at      int                // in the history
	until   [mostStates]uint64 // the tick at which each state of the history ended
	asked   [2]asking          // the lists in progress: of all pods, of the pod
	left    budget

	sent            *stage.Change // at the inspector
	hangs, canceled bool          // the inspection hangs, or is cancelled because its pod is gone
	waited          bool          // an inspection was not waited for since the pod was settled
	covered         time.Time     // the time as of which the cache is
	leaving         *stage.Change
	// first is the pod as the first list of all pods showed it; alone is set if that was the first answer,
	// committed once a change is committed.
	listed, alone, committed bool
	first                    *pleg.Pod
	told                     [mostContainers]kind
	ran                      [mostContainers]bool // an answer that counted showed it running or exited, or an event announced it
	vague                    [mostContainers]bool // an answer showed it in a state that the runtime does not know
	last                     what
	err                      error
}

// asking is a list in progress: when it began, 0 if there is none.
type asking struct {
	began uint64
	state int // the state when the list began
}

// containers are those of all histories.
const (
	containers     = "abcst"
	mostContainers = len(containers)
)

func newWorld(h history, left budget) *world {
	return &world{
		m:       newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 2}),
		history: h, left: left, now: time.Unix(1<<40, 0), last: timePasses,
	}
}

// choice is one thing that happens.
type choice struct {
	what what
	n    int // the list, state, container, ending or request that is chosen
}

type what int8

const (
	theWorldGoesOn what = iota
	listBegins
	allAnswered
	oneAnswered
	containerAnnounced
	inspectionBegins
	inspectionEnds
	podLeaves
	timePasses
	podRequested
)

// endings are how an inspection may end.
var endings = []stage.Ending{
	stage.Committed, stage.Contradicted, stage.Failed, stage.FailedLate, stage.FailedHung, stage.Superseded, stage.Hangs,
}

var requests = []request{{explorePod, true, true}, {explorePod, true, false}, {explorePod, false, false}}

// choices returns all that may happen next.
func (w *world) choices() (all []choice) {
	may := func(on bool, what what, n int) {
		if on && (!w.quiet() || what <= containerAnnounced) {
			all = append(all, choice{what, n})
		}
	}
	may(w.leaving != nil, podLeaves, 0)
	may(w.waits(), timePasses, 0)
	if w.sent == nil {
		may(w.offered() != nil, inspectionBegins, 0)
	} else {
		for n, how := range endings {
			switch how {
			case stage.Committed:
				may(true, inspectionEnds, n)
			case stage.Superseded:
				may(w.canceled, inspectionEnds, n)
			case stage.Hangs:
				may(w.left.troubles > 0 && !w.hangs, inspectionEnds, n)
			default:
				may(w.left.troubles > 0, inspectionEnds, n)
			}
		}
	}
	may(w.at < len(w.history)-1, theWorldGoesOn, 0)
	for kind, left := range []int8{w.left.all, w.left.one} {
		may(left > 0 && w.asked[kind].began == 0, listBegins, kind)
		for state := w.asked[kind].state; state <= w.at; state++ { // the list may show any state since it began
			may(w.asked[kind].began > 0, allAnswered+what(kind), state)
		}
	}
	for n := range mostContainers {
		may(w.left.events > 0 && w.hasRun(n), containerAnnounced, n)
	}
	for n := range requests {
		may(w.left.requests > 0, podRequested, n)
	}
	return all
}

// quiet reports whether the last choice was invisible to the machine: the history went on, or a list
// began. Only its order relative to choices that take a tick matters, so it comes just before one.
func (w *world) quiet() bool { return w.last <= listBegins }

// do carries out a choice.
func (w *world) do(c choice) {
	w.last = c.what
	switch c.what {
	case theWorldGoesOn:
		w.until[w.at] = w.next()
		w.at++
	case listBegins:
		w.asked[c.n] = asking{w.next(), w.at}
		if c.n == 0 {
			w.left.all--
		} else {
			w.left.one--
		}
	case allAnswered, oneAnswered:
		w.answer(int(c.what-allAnswered), w.history[c.n])
	case containerAnnounced:
		w.left.events--
		w.announce(c.n)
	case inspectionBegins:
		w.accept()
	case inspectionEnds:
		w.end(endings[c.n])
	case podLeaves:
		w.leave()
	case timePasses:
		w.now = w.now.Add(time.Hour)
		w.step(elapsed{})
	case podRequested:
		w.left.requests--
		w.step(requests[c.n])
	}
}

// next is the next tick. It leaves out every second number: a record may keep the number after a
// tick.
func (w *world) next() uint64 {
	w.tick += 2
	return w.tick
}

func (w *world) answer(kind int, pod *pleg.Pod) {
	began := w.asked[kind].began
	w.asked[kind] = asking{}
	asked := stage.Asked{Began: began, Answered: w.next(), At: time.Unix(int64(began), 0)} //nolint:gosec // small
	newest := w.m.absent.Answered
	if rec := w.m.records[explorePod]; rec != nil {
		newest = rec.asked.Answered
	}
	for _, o := range w.m.early {
		if o.Began > newest {
			newest = o.Answered
		}
	}
	if began > newest {
		each(pod, func(c *pleg.Container, _ bool) {
			n := number(c.ID)
			w.ran[n] = w.ran[n] || kindOf(c.State) >= running
			w.vague[n] = w.vague[n] || c.State == pleg.StateUnknown
		})
	}
	if kind == 1 {
		w.step(&observation{stage.Observation{Asked: asked, UID: explorePod, Pod: pod}})
		return
	}
	if !w.listed {
		w.listed, w.first, w.alone = true, pod, w.m.records[explorePod] == nil && len(w.m.early) == 0
	}
	l := stage.Listing{Asked: asked, StreamUp: true}
	if pod != nil {
		l.Pods = []*pleg.Pod{pod}
	}
	w.step(&listing{l})
}

// hasRun reports whether a container has run, so that an event may announce it, late perhaps.
func (w *world) hasRun(n int) bool {
	for _, pod := range w.history[:w.at+1] {
		if kindIn(pod, idOf(n)) >= running {
			return true
		}
	}
	return false
}

// announce applies the event of a start. It counts once a list has shown that the stream was up, unless
// an answer that counted showed the container in a state that the runtime does not know.
func (w *world) announce(n int) {
	id := idOf(n)
	h := pleg.Hint{UID: explorePod, Container: id, Name: "name", State: pleg.StateRunning, PodName: "name-p"}
	if id >= "s" {
		h.Sandbox = id
	}
	w.ran[n] = w.ran[n] || w.listed && !w.vague[n]
	w.step(Announcement{h, w.next()})
}

// offered returns the changes that the inspector may accept now.
func (w *world) offered() *stage.Change {
	inspect, retry, _ := w.m.next(w.now)
	if inspect == nil {
		return retry
	}
	return inspect
}

// waits reports whether a retry is offered later.
func (w *world) waits() bool {
	if w.sent != nil || w.offered() != nil {
		return false
	}
	later := *w
	later.now = w.now.Add(time.Hour)
	return later.offered() != nil
}

func (w *world) accept() {
	w.sent = w.offered()
	w.step(accepted{w.sent})
}

func (w *world) end(how stage.Ending) {
	c := w.sent
	var err error
	switch how {
	case stage.Contradicted:
		w.left.troubles--
		w.tell(c)
	case stage.Committed:
		w.tell(c)
	case stage.Superseded:
		w.waited = true
	case stage.Hangs:
		w.left.troubles--
		w.hangs = true
		w.step(settle{stage.Settled{UID: c.UID, How: how}})
		return
	default:
		if !w.hangs {
			w.left.troubles--
		}
		err = errFailed
	}
	w.sent, w.hangs, w.canceled = nil, false, false
	w.step(settle{stage.Settled{UID: c.UID, How: how, Err: err}})
}

var errFailed = errors.New("failed")

func (w *world) leave() {
	c := w.leaving
	w.leaving = nil
	w.tell(c)
	w.step(settle{stage.Settled{UID: c.UID, How: stage.Committed}})
}

// tell commits a change: the cache contains its state, and its events are published.
func (w *world) tell(c *stage.Change) {
	w.claim("the cache", c.At, c.Pod)
	defer func() { w.committed = true }()
	for _, ev := range c.Events {
		var step kind
		switch ev.Type {
		case pleg.ContainerStarted, stage.ContainerRan:
			step = running
		case pleg.ContainerDied:
			step = exited
		case pleg.ContainerRemoved:
			step = never
		default:
			continue
		}
		n := number(ev.ContainerID)
		if was := w.told[n]; step != max(was, changed)+1 && (!ev.Sandbox || was >= running || step != exited) {
			w.fail("%s of %s comes after the step %d", ev.Type, ev.ContainerID, was)
		}
		w.told[n] = step
		found := w.listed && kindIn(w.first, ev.ContainerID) >= step && step < never
		if ev.Replayed && !found || found && w.alone && !w.committed && !ev.Replayed {
			w.fail("%s of %s is marked as found by the first list: %v", ev.Type, ev.ContainerID, ev.Replayed)
		}
	}
}

// claim notes that the cache is as of a time, and checks that its state was true then or later.
func (w *world) claim(who string, at time.Time, pod *pleg.Pod) {
	if at.After(w.covered) {
		w.covered = at
	}
	w.requireTrue(who, at, pod)
}

// requireTrue checks that a state was true at a time or later.
func (w *world) requireTrue(who string, at time.Time, pod *pleg.Pod) {
	for n, state := range w.history[:w.at+1] {
		if same(state, pod) && (n == w.at || w.until[n] > uint64(at.Unix())) { //nolint:gosec // small
			return
		}
	}
	w.fail("%s has %q as of %d", who, plainWords(pod), at.Unix())
}

func (w *world) step(in input) {
	do := w.m.step(in, w.now)
	w.m.quarantines.changed = false
	var old *pleg.Pod
	if rec := w.m.records[explorePod]; rec != nil {
		old = rec.old
	}
	for n := range do.leaving {
		if w.leaving != nil || w.sent != nil {
			w.fail("two changes of a pod are on their way")
		}
		w.leaving = &do.leaving[n]
	}
	for _, t := range do.touch {
		w.claim("a touched pod", t.at, old)
	}
	if !do.observe.IsZero() && len(do.pending) == 0 {
		w.claim("a covered pod", do.observe, old)
	}
	if !do.mark.Current.IsZero() {
		until := do.mark.Current
		for _, behind := range do.mark.Behind {
			until = behind.Until
		}
		if !until.IsZero() {
			w.requireTrue("a mark", until, old)
		}
	}
	for _, c := range do.cancel {
		w.canceled = w.canceled || c.Gone && w.sent != nil
	}
	w.checkWait(w.m.records[explorePod])
}

// checkWait checks that the cache is as new as the newest answer once the pod is settled. Before, nobody waits
// for an inspection if the pod is gone, or if other containers use its UID. The next inspection of these is
// waited for: the new pod gets a status.
func (w *world) checkWait(rec *record) {
	if rec == nil || rec.phase == settled {
		w.waited = false
		if rec != nil && w.covered.Before(rec.asked.At) {
			w.fail("the pod is settled as of %d, the cache only as of %d", rec.asked.At.Unix(), w.covered.Unix())
		}
		return
	}
	if w.sent == nil || w.sent.Pod == nil {
		return
	}
	gone := true
	each(w.sent.Pod, func(c *pleg.Container, _ bool) { gone = gone && !hasContainer(rec.current, c.ID) })
	if want := gone && (rec.current == nil || !w.waited); want != w.canceled {
		w.fail("an inspection is cancelled: %v, want %v", w.canceled, want)
	}
}

// inPeace makes everything end well, and requires that nothing is left to do and no event is
// missing.
func (w *world) inPeace() {
	w.left, w.at = budget{all: 8}, len(w.history)-1
	for n := range w.until[:w.at] {
		if w.until[n] == 0 {
			w.until[n] = w.next()
		}
	}
	for range 4 {
		for kind := range w.asked {
			if w.asked[kind].began > 0 {
				w.answer(kind, w.history[w.at])
			}
		}
		w.do(choice{listBegins, 0})
		w.answer(0, w.history[w.at])
		for range 3 {
			if w.sent == nil && w.waits() {
				w.do(choice{timePasses, 0})
			}
			if w.sent == nil && w.offered() != nil {
				w.accept()
			}
			if w.sent != nil {
				w.end(stage.Committed)
			}
			if w.leaving != nil {
				w.leave()
			}
		}
	}
	pod := w.history[w.at]
	for n, ran := range w.ran {
		want := kindIn(pod, idOf(n))
		if want == absent {
			want = never
		}
		if told := w.told[n]; ran && told != want {
			w.fail("container %s was told until the step %d, want %d", idOf(n), told, want)
		}
	}
	rec := w.m.records[explorePod]
	switch {
	case len(w.m.queue)+len(w.m.quarantines.pods)+len(w.m.doubts.pods)+len(w.m.backlog.open) > 0:
		w.fail("waits for ever: %+v", w.m)
	case (rec == nil) != (pod == nil), rec != nil && (rec.phase != settled || !same(rec.old, pod) || rec.until != rec.asked):
		w.fail("the pod is %q, its record %+v", plainWords(pod), rec)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (c choice) String() string {
	switch c.what {
	case listBegins:
		return []string{"a list of all begins", "a list of the pod begins"}[c.n]
	case allAnswered:
		return fmt.Sprintf("the list of all shows state %d", c.n)
	case oneAnswered:
		return fmt.Sprintf("the list of the pod shows state %d", c.n)
	case containerAnnounced:
		return fmt.Sprintf("an event announces %s", idOf(c.n))
	case inspectionEnds:
		return fmt.Sprintf("the inspection ends: %d", endings[c.n])
	case podRequested:
		return fmt.Sprintf("request: %+v", requests[c.n])
	}
	return map[what]string{
		theWorldGoesOn: "the world goes on", inspectionBegins: "an inspection begins", podLeaves: "the pod leaves", timePasses: "time passes",
	}[c.what]
}

func number(id pleg.ContainerID) int { return strings.Index(containers, string(id)) }

func idOf(n int) pleg.ContainerID { return pleg.ContainerID(containers[n : n+1]) }

// podOf returns a pod in words. "" is no pod.
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
