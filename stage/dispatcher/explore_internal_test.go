package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/fields"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// fact is an event of the history of TestSmallLogs, with the labels of its pod at that time.
type fact struct {
	uid, id string
	what    pleg.EventType
	app     string
	minute  int // the time of the change, see [happened]
	last    bool
}

// facts are the events in the order of the log: fact n-1 is number n. The second event happened before the
// first; the pod b is gone in the end.
var facts = []fact{
	{"a", "c", pleg.ContainerStarted, "web", 2, false},
	{"b", "d", pleg.ContainerStarted, "mail", 1, false},
	{"a", "c", pleg.ContainerDied, "web", 3, false},
	{"b", "d", pleg.ContainerRemoved, "web", 4, true},
}

func minute(n int) time.Time { return time.Unix(1_700_000_000, 0).Add(time.Duration(n) * time.Minute) }

// outcome returns the nth outcome. The third list shows no labels.
func (f *fact) outcome(n int) stage.Outcome {
	ev := pleg.Event{Type: f.what, PodUID: pleg.PodUID(f.uid), ContainerID: pleg.ContainerID(f.id), ObservedAt: minute(f.minute)}
	o := stage.Outcome{UID: ev.PodUID, Last: plegtest.Pod(ev.PodUID, ""), Events: []pleg.Event{ev}}
	if n != 2 {
		o.Last.Labels = map[string]string{"app": f.app}
	}
	if !f.last {
		o.Pod = o.Last
	}
	return o
}

// smallLogs are logs that hold one to three of the four events, and three subscribers each.
var smallLogs = map[string]struct {
	history     int
	together    bool
	subscribers [3]pleg.SubscribeOptions
}{
	"the present, a state, a position":     {2, true, [3]pleg.SubscribeOptions{{}, {Replay: true, Bookmarks: true}, {After: pleg.Position{Epoch: "e", Seq: 1}}}},
	"a log of one event":                   {1, false, [3]pleg.SubscribeOptions{{Bookmarks: true}, {Replay: true}, {After: pleg.Position{Epoch: "f", Seq: 1}}}},
	"times, a position with the state":     {3, false, [3]pleg.SubscribeOptions{{Since: minute(2)}, {Since: minute(2), Replay: true}, {After: pleg.Position{Epoch: "e", Seq: 2}, Replay: true}}},
	"some pods by UID, by label, by types": {2, false, [3]pleg.SubscribeOptions{{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"b"}}, Bookmarks: true}, {Replay: true, Filter: pleg.Filter{Selector: "app=web"}}, {Replay: true, Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied}}}}},
}

// TestSmallLogsCopyAll fails if a field is new that clone or encode may have to know.
func TestSmallLogsCopyAll(t *testing.T) {
	fields.Require(t, Dispatcher{}, "epoch opts metrics log callers subscribers stopping last present pods",
		"began names warned") // of times, of generated names, of the warning
	fields.Require(t, log{}, "ring state")
	fields.Require(t, state{}, "newest synced mark stopped changed")
	fields.Require(t, presentPod{}, "last", "labels") // the labels follow from the events
	fields.Require(t, Subscription{}, "d options filter positions closed left at counts reader",
		"reading pump") // set during a read, of Events
	fields.Require(t, reader{}, "placed seen gap replay skip syncing synced mark")
	fields.Require(t, position{}, "at seq gap missed pods")
	fields.Require(t, bookmark{}, "seq current", "behind") // no pod lags behind here
	fields.Require(t, counts{}, "gaps missed")
	fields.Require(t, logWorld{}, "d readers appended marks stopped synced marked", "steps leaves left") // these fields follow from the others, or stay
	fields.Require(t, logReader{}, "options sub asks placed began left ended last newest since gap state syncs mark missed")
}

// TestSmallLogs tries every order in which four events are appended and published, marks come, subscribers come,
// read and leave, and the dispatcher stops. Each reader gets its wanted events once and in order, or a Gap that
// counts them and then the present state. It never waits while there is an event for it. First each subscriber
// runs alone, with every single step of it and of the loop. Then all three run, one after the other, once the
// first list is settled, with whole turns of the loop and reads that take all events.
func TestSmallLogs(t *testing.T) {
	for name, tc := range smallLogs {
		for n, o := range tc.subscribers {
			t.Run(fmt.Sprint(name, ", alone ", n), func(t *testing.T) {
				t.Parallel()
				w := &logWorld{steps: true, leaves: n == 1, left: 1}
				if o.Bookmarks {
					w.left++
				}
				exploreLog(t, w, tc.history, o)
			})
		}
		if tc.together {
			t.Run(name+", together", func(t *testing.T) {
				t.Parallel()
				exploreLog(t, &logWorld{}, tc.history, tc.subscribers[:]...)
			})
		}
	}
}

func exploreLog(t *testing.T, w *logWorld, history int, subscribers ...pleg.SubscribeOptions) {
	t.Helper()
	var err error
	if w.d, err = New(Options{History: history}); err != nil {
		t.Fatal(err)
	}
	w.d.epoch = "e"
	for _, o := range subscribers {
		w.readers = append(w.readers, logReader{options: o})
	}
	if !w.steps {
		if err := w.mark(); err != nil {
			t.Fatal(err)
		}
	}
	e := logExplorer{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{})}
	if e.explore(w); e.failure != nil {
		t.Errorf("%d states, then %v, after %s", len(e.seen), e.failure, strings.Join(e.path, ", "))
	}
	t.Logf("%d states", len(e.seen))
}

// logWorld is a dispatcher whose loop and readers take their steps one by one.
type logWorld struct {
	d        *Dispatcher
	readers  []logReader
	steps    bool   // a turn of the loop, and a read of several events, is several steps
	leaves   bool   // subscribers may leave at any time
	left     int    // marks that may come
	appended uint64 // facts
	marks    int
	stopped  bool
	synced   uint64   // the number at which the first mark came
	marked   []uint64 // the numbers at which the marks came
}

// logReader is a subscriber, with the events that it must have got.
type logReader struct {
	options pleg.SubscribeOptions
	sub     *Subscription // nil before it comes
	asks    bool          // the reader waits for a position
	placed  bool          // the loop has given it a position, once at least
	began   bool          // the reader has begun to read
	left    bool
	ended   bool

	last   uint64   // the reader got all wanted events up to this number, or a Gap for them
	newest uint64   // the last event that was appended when it got its position
	since  uint64   // up to this number it wants only events since a time
	gap    string   // the reason of the Gap that must come first
	state  []uint64 // the events of the state that must come
	syncs  bool     // Synced must come after the newest
	mark   int      // the last Bookmark
	missed uint64
}

type logExplorer struct {
	seen    map[uint64]struct{}
	seed    maphash.Seed
	out     []byte
	path    []string
	failure error
}

func (e *logExplorer) explore(w *logWorld) {
	e.out = w.encode(e.out[:0])
	key := maphash.Bytes(e.seed, e.out)
	if _, ok := e.seen[key]; ok || e.failure != nil {
		return
	}
	e.seen[key] = struct{}{}
	try := func(on bool, what string, do func(*logWorld) error) {
		if on && e.failure == nil {
			c := w.clone()
			e.path = append(e.path, what)
			if e.failure = do(c); e.failure == nil {
				e.explore(c)
			}
			if e.failure == nil {
				e.path = e.path[:len(e.path)-1]
			}
		}
	}
	known := w.d.log.state.Load()
	idle := w.d.last.newest == known.newest // between two cases of the loop
	try(!w.stopped && w.appended < uint64(len(facts)), "append", (*logWorld).append)
	try(!idle, "publish", func(w *logWorld) error { w.d.publish(); return nil })
	try(!w.stopped && w.left > 0, "mark", (*logWorld).mark)
	try(!w.stopped && idle && (w.steps || w.appended == uint64(len(facts))), "stop", (*logWorld).stop)
	asked := false
	for i := range w.readers {
		r := &w.readers[i]
		asked = asked || r.asks
		try(r.sub == nil && !w.stopped && (i == 0 || w.readers[i-1].sub != nil), fmt.Sprint("subscribe ", i), func(w *logWorld) error { return w.subscribe(i) })
		try(r.sub != nil && !r.left && !r.ended, fmt.Sprint("read ", i), func(w *logWorld) error { return w.readAll(i) })
		try(w.leaves && r.sub != nil && !r.left, "close", func(w *logWorld) error { return w.close(i) })
	}
	try(idle && asked && !w.stopped, "answer", func(w *logWorld) error {
		w.answer()
		return nil
	})
}

func (w *logWorld) answer() {
	w.place()
	w.d.answer(w.d.callers.Take())
}

func (w *logWorld) append() error {
	w.place()
	n := int(w.appended)
	w.appended++
	if w.d.append(facts[n].outcome(n)); !w.steps {
		w.d.publish()
	}
	return nil
}

func (w *logWorld) mark() error {
	w.marks++
	w.left--
	if w.marked = append(slices.Clip(w.marked), w.appended); w.marks == 1 {
		w.synced = w.appended
	}
	w.d.mark(stage.Mark{Current: minute(w.marks)})
	return nil
}

func (w *logWorld) stop() error {
	w.stopped = true
	w.place()
	w.d.stop()
	return nil
}

func (w *logWorld) subscribe(i int) error {
	r, o := &w.readers[i], w.readers[i].options
	o.Name = fmt.Sprint(i)
	s, err := w.d.Subscribe(o)
	if err != nil {
		return err
	}
	if r.sub, r.asks = s, true; !w.steps {
		w.answer()
	}
	return nil
}

func (w *logWorld) close(i int) error {
	w.readers[i].left = true
	w.readers[i].sub.left = make(chan struct{}) // clones share it until then
	w.readers[i].sub.Close()
	if _, err := w.readers[i].sub.readOne(nil); !errors.Is(err, pleg.ErrClosed) {
		return fmt.Errorf("after Close the end is %w", err)
	}
	return nil
}

// wants returns whether a reader wants an event.
func (r *logReader) wants(seq uint64) bool {
	f := &facts[seq-1]
	return r.wantsState(f, f.app) && (seq > r.since || !minute(f.minute).Before(r.options.Since))
}

func (r *logReader) wantsState(f *fact, app string) bool {
	o := &r.options.Filter
	return (len(o.PodUIDs) == 0 || string(o.PodUIDs[0]) == f.uid) && (len(o.Types) == 0 || o.Types[0] == f.what) &&
		(o.Selector == "" || o.Selector == "app="+app)
}

// pass requires that a reader wants no event after its last number, up to seq.
func (r *logReader) pass(seq uint64) error {
	for n := r.last + 1; n <= seq; n++ {
		if r.wants(n) {
			return fmt.Errorf("event %d is passed over", n)
		}
	}
	r.last = max(r.last, seq)
	return nil
}

// stateOf returns the numbers of the events that are the state after the event newest, without those after
// until.
func (r *logReader) stateOf(newest, until uint64) (state []uint64) {
	last, app := make(map[string]uint64), make(map[string]string)
	for n := uint64(1); n <= newest; n++ {
		f := &facts[n-1]
		app[f.uid] = f.app
		if last[f.id] = n; f.what == pleg.ContainerRemoved {
			delete(last, f.id)
		}
	}
	for _, n := range last {
		if f := &facts[n-1]; n <= until && r.wantsState(f, app[f.uid]) {
			state = append(state, n)
		}
	}
	slices.Sort(state)
	return state
}

// lost returns whether the log does not contain an event any more.
func (w *logWorld) lost(seq uint64) bool { return seq+uint64(len(w.d.log.ring)) <= w.appended }

// place notes that the loop answers a reader that waits for a position.
func (w *logWorld) place() {
	for i := range w.readers {
		r := &w.readers[i]
		if !r.asks || r.left {
			continue
		}
		after := r.options.After
		r.asks, r.newest = false, w.appended
		switch {
		case r.placed:
			r.gap = pleg.HistoryTooShort
		case after.Epoch == "": // with Since, the log at the first read counts
			r.last = w.appended
		case after.Epoch != w.d.epoch, after.Seq > w.appended:
			r.gap = pleg.OtherEpoch
		default:
			if r.last = after.Seq; r.last < w.appended && w.lost(r.last+1) {
				r.gap = pleg.HistoryTooShort
			}
		}
		r.placed = true
	}
}

// begin notes that a reader begins to read.
func (w *logWorld) begin(r *logReader) {
	r.began = true
	o := &r.options
	r.syncs = o.Replay || o.After.Epoch != "" || !o.Since.IsZero()
	if !o.Since.IsZero() {
		for n := r.newest; n > 0 && !w.lost(n); n-- {
			if !minute(facts[n-1].minute).Before(o.Since) {
				r.last = n - 1
			}
		}
		if !o.Replay {
			r.since = r.newest
		}
	}
	if o.Replay && r.gap == "" {
		r.state = r.stateOf(r.newest, r.last)
	}
}

// readAll makes a reader take all its events, or one event in small steps.
func (w *logWorld) readAll(i int) error {
	for {
		more, err := w.read(i)
		if !more || err != nil || w.steps {
			return err
		}
	}
}

// read makes a reader take its next events, and checks them.
func (w *logWorld) read(i int) (bool, error) {
	r := &w.readers[i]
	s, published := r.sub, w.d.log.state.Load().newest
	if r.placed && !r.began {
		w.begin(r)
	}
	select {
	case p := <-s.positions:
		s.place(p)
	default:
	}
	ev, ok := s.take()
	if err := w.check(r, &ev, ok, published); err != nil {
		return false, fmt.Errorf("reader %d got %v %+v with %+v: %w", i, ok, ev, *r, err)
	}
	if at := s.at.Load(); r.placed && at != r.last {
		return false, fmt.Errorf("reader %d is at %d, want %d", i, at, r.last)
	}
	if lag := s.Lag(); r.placed && lag.Events != published-min(r.last, published) {
		return false, fmt.Errorf("reader %d at %d of %d has the lag %+v", i, r.last, published, lag)
	}
	if r.placed && s.counts.missed.Load() != r.missed {
		return false, fmt.Errorf("reader %d missed %d, counted are %d", i, r.missed, s.counts.missed.Load())
	}
	return ok, nil
}

func (w *logWorld) check(r *logReader, ev *pleg.Event, ok bool, published uint64) error {
	s, before := r.sub, r.last
	synced := w.marks > 0 && r.last >= max(r.newest, w.synced)
	switch {
	case !ok && r.asks && !w.stopped:
		return nil
	case !ok && !s.reader.placed: // the log has moved past it
		if r.asks = true; w.stopped || r.gap != "" || len(r.state) > 0 {
			return errors.New("it waits for a position")
		}
		if at := s.at.Load(); at >= published || !w.lost(at+1) {
			return fmt.Errorf("it gives up at %d of %d", at, published)
		}
		return r.pass(s.at.Load())
	case ok && ev.Epoch != w.d.epoch:
		return errors.New("of another epoch")
	case ok && r.gap != "":
		missed := r.newest - r.last
		if r.gap == pleg.OtherEpoch {
			missed = 0
		}
		if ev.Type != pleg.Gap || ev.Reason != r.gap || ev.Seq != r.newest || ev.Missed != missed {
			return fmt.Errorf("want a Gap that counts %d", missed)
		}
		r.gap, r.state, r.syncs, r.last = "", r.stateOf(r.newest, r.newest), true, r.newest
		r.missed += missed
		return nil
	case ok && len(r.state) > 0:
		if ev.Seq != r.state[0] || !ev.Replayed || string(ev.PodUID) != facts[ev.Seq-1].uid {
			return errors.New("it is not of the state")
		}
		r.state = r.state[1:]
		return nil
	case !ok:
		if err := r.pass(published); err != nil {
			return err
		}
		synced = w.marks > 0 && r.last >= max(r.newest, w.synced)
		if r.gap != "" || len(r.state) > 0 || r.syncs && synced || r.options.Bookmarks && r.mark < w.marks && r.last >= w.marked[w.marks-1] {
			return errors.New("it waits")
		}
		if r.ended = w.stopped; r.ended {
			if _, err := s.next(nil); !errors.Is(err, pleg.ErrStopped) {
				return fmt.Errorf("the end is %w", err)
			}
		}
		return nil
	}
	if ev.Type == pleg.Gap {
		r.last, r.syncs, r.mark = ev.Seq, false, w.marks // nothing follows it
		r.missed += ev.Missed
		switch after := ev.Seq - ev.Missed; {
		case ev.Reason != pleg.Stopped, !w.stopped, ev.Seq != published, after < before, after >= published, !w.lost(after + 1):
			return errors.New("it is no Gap of the end")
		default:
			for n := before + 1; n <= after; n++ {
				if r.wants(n) {
					return fmt.Errorf("event %d is passed over", n)
				}
			}
		}
		return nil
	}
	if ev.Seq < r.last || ev.Seq > max(published, r.newest) {
		return errors.New("its number")
	}
	switch ev.Type {
	case pleg.Synced, pleg.Bookmark:
		if err := r.pass(ev.Seq); err != nil {
			return err
		}
		if ev.Type == pleg.Synced {
			if !r.syncs || w.marks == 0 || r.last < max(r.newest, w.synced) {
				return errors.New("it is too early")
			}
			r.syncs = false
			return nil
		}
		if !r.options.Bookmarks || r.mark == w.marks || r.last < w.marked[w.marks-1] || !ev.ObservedAt.Equal(minute(w.marks)) {
			return errors.New("there is no such mark")
		}
		r.mark = w.marks
		return nil
	}
	if r.syncs && synced || r.options.Bookmarks && r.mark < w.marks && before >= w.marked[w.marks-1] {
		return errors.New("a mark is late")
	}
	if err := r.pass(ev.Seq - 1); err != nil {
		return err
	}
	if ev.Seq != r.last+1 || ev.Seq > published || ev.Replayed || !r.wants(ev.Seq) || ev.Type != facts[ev.Seq-1].what || string(ev.PodUID) != facts[ev.Seq-1].uid {
		return errors.New("it is not what comes next")
	}
	r.last = ev.Seq
	return nil
}

// clone returns a copy that shares only constant parts.
func (w *logWorld) clone() *logWorld {
	c := *w
	c.readers = slices.Clone(w.readers)
	d := &Dispatcher{
		epoch: w.d.epoch, opts: w.d.opts, metrics: w.d.metrics, log: newLog(len(w.d.log.ring)),
		callers: mailbox.New[*Subscription](), stopping: make(chan struct{}),
		last: w.d.last, present: maps.Clone(w.d.present), pods: w.d.pods, warned: make(map[*Subscription]bool),
	}
	c.d = d
	known := *w.d.log.state.Load()
	known.changed = make(chan struct{})
	d.log.state.Store(&known)
	for i := range w.d.log.ring {
		d.log.ring[i].Store(w.d.log.ring[i].Load())
	}
	copies := make(map[*Subscription]*Subscription, len(c.readers))
	for i := range c.readers {
		r := &c.readers[i]
		r.state = slices.Clone(r.state)
		if r.sub != nil {
			copies[r.sub] = r.sub.clone(d)
			r.sub = copies[r.sub]
		}
	}
	var present []*Subscription
	for _, s := range *w.d.subscribers.Load() {
		present = append(present, copies[s])
	}
	d.subscribers.Store(&present)
	for _, s := range w.d.callers.Take() {
		w.d.callers.Put(s)
		d.callers.Put(copies[s])
	}
	if w.stopped {
		d.callers.Close()
		close(d.stopping)
	}
	return &c
}

func (s *Subscription) clone(d *Dispatcher) *Subscription {
	c := &Subscription{d: d, options: s.options, filter: s.filter, positions: make(chan position, 1), left: s.left}
	if len(s.positions) > 0 {
		p := <-s.positions
		s.positions <- p
		c.positions <- p
	}
	c.closed.Store(s.closed.Load())
	c.at.Store(s.at.Load())
	if s.counts != nil {
		c.counts = new(counts)
		c.counts.gaps.Store(s.counts.gaps.Load())
		c.counts.missed.Store(s.counts.missed.Load())
	}
	c.reader = s.reader
	return c
}

// encode writes a world so that two worlds that behave alike are equal.
func (w *logWorld) encode(out []byte) []byte {
	num := func(numbers ...uint64) {
		for _, n := range numbers {
			out = binary.AppendUvarint(out, n)
		}
	}
	is := func(on ...bool) {
		for _, on := range on {
			if num(0); on {
				out[len(out)-1] = 1
			}
		}
	}
	mark := func(b *bookmark) {
		if num(0); b != nil {
			out[len(out)-1] = byte(b.current.Sub(minute(0)) / time.Minute)
		}
	}
	d := w.d
	known := d.log.state.Load()
	num(w.appended, known.newest, d.last.newest, uint64(w.marks), w.synced)
	num(w.marked...)
	is(w.stopped, known.stopped, d.last.stopped, d.pods != nil)
	mark(known.mark)
	for _, pods := range [][]*presentPod{d.pods, slices.Collect(maps.Values(d.present))} {
		sum := uint64(len(pods)) // in any order
		for _, pod := range pods {
			for _, e := range pod.last {
				sum += 1 << (4 * e.event.Seq)
			}
		}
		num(sum)
	}
	waiting := d.callers.Take()
	for _, s := range waiting {
		d.callers.Put(s)
		num(10 + uint64(s.options.Name[0]-'0'))
	}
	for i := range w.readers {
		r := &w.readers[i]
		is(r.sub != nil, r.asks, r.placed, r.began, r.left, r.ended, r.gap != "", r.syncs)
		if r.sub == nil {
			continue
		}
		num(r.last, r.newest, r.since, uint64(r.mark), r.missed, uint64(len(r.state)))
		num(r.state...)
		s := r.sub
		is(s.closed.Load(), s.counts != nil, len(s.positions) > 0, slices.Contains(*d.subscribers.Load(), s))
		if len(s.positions) > 0 {
			p := <-s.positions
			s.positions <- p
			num(p.at, p.seq, p.missed, uint64(len(p.gap)))
			is(p.pods != nil)
		}
		read := &s.reader
		num(s.at.Load(), read.skip, read.synced, uint64(len(read.replay)))
		is(read.placed, read.gap != nil, read.syncing, read.seen != nil && read.seen.stopped)
		mark(read.mark)
	}
	return out
}

// A replay contains the end as a ContainerCorrected completed it.
func TestReplayHasWhatWasCorrected(t *testing.T) {
	code := int32(137)
	died := pleg.Event{Seq: 1, Type: pleg.ContainerDied, ContainerID: "c", Image: "old", Reason: "Error"}
	says := pleg.Event{
		Seq: 1, Type: pleg.ContainerCorrected, ContainerID: "c",
		Image: "new", StartedAt: minute(1), ExitCode: &code, Reason: "OOMKilled", FinishedAt: minute(2),
	}
	var pod presentPod
	pod.add(&entry{event: died})
	pod.add(&entry{event: says})
	says.Type = died.Type
	if got := pod.last[0].event; !reflect.DeepEqual(got, says) {
		t.Errorf("a replay has %+v, want %+v", got, says)
	}
}
