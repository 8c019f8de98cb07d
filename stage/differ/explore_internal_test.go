package differ

import (
	"flag"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/fields"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

var runs = flag.Int("differ.runs", 2_000, "number of ways that TestExplore takes")

var large = flag.Bool("differ.large", false, "two more inputs may happen in the worlds of TestSmallWorlds")

// smallWorlds are short lives of a pod with two containers and a sandbox, with the possible inputs. The first
// contains everything: two lists of all pods and a list of this pod, two CRI events, an inspection that fails,
// hangs or contradicts the list, and a request.
var smallWorlds = map[string]struct {
	history history
	left    budget
}{
	"a container dies and another starts":    {historyOf("a=running /s=running", "a=exited b=running /s=running"), budget{2, 1, 2, 1, 1}},
	"the pod comes and goes":                 {historyOf("", "a=running /s=running", ""), budget{2, 1, 1, 1, 0}},
	"its UID comes back":                     {historyOf("a=running /s=running", "", "c=running /t=running"), budget{2, 1, 0, 1, 0}},
	"its UID belongs to another pod at once": {historyOf("a=running /s=running", "c=running /t=running"), budget{2, 1, 1, 1, 0}},
	"its UID belongs to other pods, again":   {historyOf("a=running", "b=running", "b=exited", "c=running"), budget{4, 0, 0, 0, 0}},
	"its state is not known for a moment":    {historyOf("a=running /s=running", "a=unknown /s=running", "a=exited /s=running"), budget{2, 1, 0, 1, 0}},
	"a life that lists may miss":             {historyOf("a=created /s=running", "a=running /s=running", "/s=running"), budget{2, 1, 1, 0, 0}},
}

// TestSmallWorldsCopyAll fails if a field is new that clone or encode may have to know.
func TestSmallWorldsCopyAll(t *testing.T) {
	fields.Require(t, machine{}, "records absent early queue quarantines doubts backlog lives",
		"moved found taken",     // for the report of waiting pods, see survivors_test.go
		"streamUp expectations", // expectations only cause lists
		"now do")                // of a step in progress
	fields.Require(t, record{}, "phase old current asked named found unseen next sent need held replaced urgent asksEnd until owes listed",
		"uid") // the same in all
	fields.Require(t, sent{}, "pod asked passed need timeout")
	fields.Require(t, unseen{}, "passed heard")
	fields.Require(t, life{}, "passed heard")
	fields.Require(t, passed{}, "pod container start", "sandbox")  // the id says it
	fields.Require(t, lives{}, "begun told removed", "heard lost") // counts of the others
	fields.Require(t, quarantine{}, "Quarantined rec tried late")
	fields.Require(t, pleg.Quarantined{}, "Hung NextTry", "UID Namespace Name Since Err Call") // for people
	fields.Require(t, quarantines{}, "pods", "first longest slots", "changed")                 // options; for the report
	fields.Require(t, doubt{}, "rec wait due")
	fields.Require(t, doubts{}, "pods", "first longest") // options
	fields.Require(t, backlog{}, "open")
	fields.Require(t, open{}, "Asked", "callers")                                          // there are none
	fields.Require(t, stage.Change{}, "Pod Last At Events Reinspect Retry", "UID Timeout") // Timeout is in record.sent
	fields.Require(t, stage.Asked{}, "Began Answered At")
	fields.Require(t, world{}, "m history now at until asked left sent hangs canceled waited covered leaving listed alone committed first told ran vague",
		"tick last err") // the order of ticks counts; of the last step; ends the search
}

// TestSmallWorlds tries every order of the possible inputs in a few small worlds. In each, a step of a
// container is reported once and in order, events of the first list are marked, and the cache never
// contains a wrong state for a time. If all faults end at any moment, everything is reported in the end.
func TestSmallWorlds(t *testing.T) {
	for name, tc := range smallWorlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budgets := []budget{tc.left}
			if *large {
				budgets = tc.left.twoMore()
			}
			for _, left := range budgets {
				e := explorer{seed: maphash.MakeSeed(), seen: make(map[uint64][]budget), peaceful: make(map[uint64]struct{})}
				if e.explore(newWorld(tc.history, left)); e.failure != "" {
					t.Errorf("%+v: %d states, then %s", left, e.states, e.failure)
				}
				if *large {
					t.Logf("%+v: %d states", left, e.states)
				}
			}
		})
	}
}

// twoMore returns the budgets with two more inputs, of each two kinds.
func (b budget) twoMore() (all []budget) {
	for first := range 5 {
		for second := first; second < 5; second++ {
			more := b
			for _, kind := range []int{first, second} {
				*[]*int8{&more.all, &more.one, &more.events, &more.troubles, &more.requests}[kind]++
			}
			all = append(all, more)
		}
	}
	return all
}

// TestExplore takes random ways through a long life: for a moment the runtime does not know the state of a
// container, and in the end a new pod uses the UID.
func TestExplore(t *testing.T) {
	long := historyOf(
		"", "a=created /s=running", "a=running /s=running", "a=unknown /s=running", "a=exited b=running /s=running", "b=running /s=running",
		"b=unknown /s=running", "b=exited /s=exited", "", "c=running /t=running",
	)
	for seed := range uint64(*runs) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
		w, e := newWorld(long, budget{4, 3, 4, 3, 1}), explorer{}
		for all := w.choices(); len(all) > 0 && len(e.path) < 200; all = w.choices() {
			e.path = append(e.path, all[r.IntN(len(all))])
			w.do(e.path[len(e.path)-1])
		}
		w.inPeace()
		if e.check(w); e.failure != "" {
			t.Fatalf("seed %d: %s", seed, e.failure)
		}
	}
}

// explorer tries every order of the possible steps.
type explorer struct {
	// seen are the explored worlds with their remaining budget: with less, nothing new happens.
	seen     map[uint64][]budget
	peaceful map[uint64]struct{}
	seed     maphash.Seed
	encoder  encoder
	path     []choice
	states   int
	failure  string
}

func (e *explorer) explore(w *world) {
	key := maphash.Bytes(e.seed, e.encoder.encode(w))
	if slices.ContainsFunc(e.seen[key], w.left.within) {
		return
	}
	e.seen[key] = append(slices.DeleteFunc(e.seen[key], func(b budget) bool { return b.within(w.left) }), w.left)
	e.states++
	if _, ok := e.peaceful[key]; !ok && !w.quiet() {
		e.peaceful[key] = struct{}{}
		c := w.clone()
		c.inPeace()
		e.check(c)
	}
	for _, next := range w.choices() {
		if e.failure != "" {
			return
		}
		c := w.clone()
		c.do(next)
		e.path = append(e.path, next)
		e.check(c)
		e.explore(c)
		e.path = e.path[:len(e.path)-1]
	}
}

func (b budget) within(o budget) bool {
	return b.all <= o.all && b.one <= o.one && b.events <= o.events && b.troubles <= o.troubles && b.requests <= o.requests
}

func (e *explorer) check(w *world) {
	if w.err != nil && e.failure == "" {
		e.failure = fmt.Sprintf("%v, after:", w.err)
		for _, c := range e.path {
			e.failure += "\n\t" + c.String()
		}
	}
}

// clone returns a copy that shares nothing that changes.
func (w *world) clone() *world {
	c := *w
	m := &c.m
	var rec *record
	m.records = make(map[pleg.PodUID]*record, 1)
	if old := w.m.records[explorePod]; old != nil {
		rec = new(record)
		*rec = *old
		rec.unseen = unseen{slices.Clone(old.unseen.passed), slices.Clone(old.unseen.heard)}
		if old.next != nil {
			next := *old.next
			next.Events = slices.Clone(next.Events)
			rec.next = &next
		}
		m.records[explorePod] = rec
	}
	m.do = effects{}
	if len(m.queue) > 0 {
		m.queue = []*record{rec}
	}
	if len(m.quarantines.pods) > 0 {
		held := *m.quarantines.pods[0]
		held.rec = rec
		m.quarantines.pods = []*quarantine{&held}
	}
	if len(m.doubts.pods) > 0 {
		d := *m.doubts.pods[0]
		d.rec = rec
		m.doubts.pods = []*doubt{&d}
	}
	m.backlog.open = slices.Clone(m.backlog.open)
	m.lives.told = maps.Clone(m.lives.told)
	m.lives.removed = removed{maps.Clone(m.lives.removed.last), maps.Clone(m.lives.removed.before)}
	m.expectations = expectations{waits: make(map[one]*expectation)} // expectations only cause lists
	return &c
}

// encoder writes a world so that two worlds that behave alike are equal. Only the order of ticks counts.
// For most ticks only their order relative to the beginning of each list in progress counts.
type encoder struct {
	w      *world
	out    []byte
	ticks  []uint64
	places []int // of the ticks in out
	sorted []uint64
}

func (e *encoder) byte(b ...byte) { e.out = append(e.out, b...) }

func (e *encoder) bool(on ...bool) {
	for _, on := range on {
		b := byte(0)
		if on {
			b = 1
		}
		e.byte(b)
	}
}

func (e *encoder) tick(ticks ...uint64) {
	for _, tick := range ticks {
		e.ticks, e.places = append(e.ticks, tick), append(e.places, len(e.out))
		e.out = append(e.out, 0)
	}
}

// after writes whether a tick comes after the beginning of each list in progress.
func (e *encoder) after(tick uint64) {
	for _, a := range e.w.asked {
		e.bool(a.began > 0 && tick > a.began)
	}
}

// at writes which state of the history was true at a time.
func (e *encoder) at(t time.Time) {
	n := 0
	for n < e.w.at && e.w.until[n] <= uint64(t.Unix()) {
		n++
	}
	e.byte(byte(n))
}

func (e *encoder) pod(h history, pods ...*pleg.Pod) {
	for _, pod := range pods {
		switch i := slices.Index(h, pod); {
		case i >= 0:
			e.byte(byte(i))
		default: // an event named it
			e.byte(255)
		}
	}
}

func (e *encoder) encode(w *world) []byte {
	e.w, e.out, e.ticks, e.places = w, e.out[:0], e.ticks[:0], e.places[:0]
	e.byte(byte(w.at), byte(w.asked[0].state), byte(w.asked[1].state))
	e.tick(0, w.asked[0].began, w.asked[1].began)
	e.change(w.history, w.sent)
	e.change(w.history, w.leaving)
	e.bool(w.quiet(), w.hangs, w.canceled, w.waited, w.listed, w.alone, w.committed)
	e.pod(w.history, w.first)
	for n := range mostContainers {
		e.byte(byte(w.told[n]))
		e.bool(w.ran[n], w.vague[n])
	}
	m := &w.m
	e.tick(m.absent.Began)
	e.after(m.absent.Answered)
	for _, o := range m.early {
		e.pod(w.history, o.Pod)
		e.tick(o.Began)
		e.after(o.Answered)
		e.at(o.At)
	}
	e.bool(len(m.queue) > 0, m.lives.begun)
	e.byte(byte(len(m.lives.told)))
	for n := range mostContainers {
		of := one{explorePod, idOf(n)}
		e.byte(byte(m.lives.told[of]))
		e.bool(m.lives.removed.has(of))
	}
	for _, o := range m.backlog.open {
		e.tick(o.Began)
	}
	e.bool(len(m.quarantines.pods) > 0, len(m.doubts.pods) > 0)
	for _, q := range m.quarantines.pods {
		e.bool(q.late)
		e.byte(byte(q.Hung))
		e.time(w.now, q.NextTry, q.tried)
	}
	for _, d := range m.doubts.pods {
		e.time(w.now, d.due)
		e.byte(byte(d.wait / time.Second))
	}
	if r := m.records[explorePod]; r != nil {
		e.record(w, r)
	}
	e.sorted = append(e.sorted[:0], e.ticks...)
	slices.Sort(e.sorted)
	e.sorted = slices.Compact(e.sorted)
	for n, tick := range e.ticks {
		i, _ := slices.BinarySearch(e.sorted, tick)
		e.out[e.places[n]] = byte(i)
	}
	return e.out
}

func (e *encoder) record(w *world, r *record) {
	e.byte(byte(r.phase), byte(r.need), byte(r.sent.need), byte(r.sent.passed), byte(r.sent.timeout/time.Second))
	e.pod(w.history, r.old, r.current, r.named, r.found, r.sent.pod)
	e.after(r.asked.Answered)
	e.at(r.asked.At)
	e.tick(r.asked.Began, r.sent.asked.Began, r.until.Began, r.owes)
	if !r.until.At.IsZero() {
		e.at(r.until.At)
	}
	e.bool(!w.covered.Before(r.asked.At), r.held, r.replaced, r.urgent, r.listed <= r.asked.Began)
	e.time(w.now, r.asksEnd)
	e.change(w.history, r.next)
	for _, p := range r.unseen.passed {
		e.passed(p)
	}
	e.byte(255)
	for _, h := range r.unseen.heard {
		e.passed(h.passed)
		e.after(h.heard)
	}
}

func (e *encoder) passed(p passed) {
	e.pod(e.w.history, p.pod)
	e.byte(p.container.ID[0], byte(len(p.start)))
}

func (e *encoder) time(now time.Time, times ...time.Time) {
	for _, t := range times {
		switch {
		case t.IsZero():
			e.byte(0)
		default:
			e.byte(byte(128 + max(-100, min(100, t.Sub(now)/time.Minute))))
		}
	}
}

func (e *encoder) change(h history, c *stage.Change) {
	if c == nil {
		e.byte(255)
		return
	}
	e.pod(h, c.Pod, c.Last)
	e.bool(c.Reinspect, c.Retry)
	e.at(c.At)
	e.byte(byte(len(c.Events)))
	for _, ev := range c.Events {
		id := byte(0)
		if ev.ContainerID != "" {
			id = ev.ContainerID[0]
		}
		e.byte(id, ev.Type[len("Cont")], byte(len(ev.Type)))
		e.bool(ev.Replayed)
	}
}
