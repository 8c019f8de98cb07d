// Package differ is the second stage: it keeps the old and the current record of
// every pod and computes the changes between two answers. It may change in any version.
//
// [Differ.Run] waits for an input, lets the machine apply it (machine.go, answer.go, settle.go), and
// carries out the effects. The record of a pod decides what follows from an input: it contains a
// phase, and a few methods for inputs (record.go). Each of the other files answers one question:
// which events a difference makes (diff.go), which containers came and went unseen (lives.go), when
// a hung pod is tried again (quarantine.go), when a pod is inspected again whose status contradicts
// its list (doubts.go), which listing waits for which pod (backlog.go), and which changes events let
// expect (expect.go).
package differ

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Cache is told which pods an answer covers without an inspection.
type Cache interface {
	// Observe notes a listing that covers every pod except the pending pods. The slice is only
	// lent, the pods may be kept.
	Observe(at time.Time, pending []*pleg.Pod)
	// Touch notes an answer that equals the pod in the cache.
	Touch(uid pleg.PodUID, at time.Time)
}

// Options configure a [Differ].
type Options struct {
	Cache Cache
	// RelistSoon requests a list of all pods within the relist period, RelistPod one of a single pod.
	// Neither blocks.
	RelistSoon func()
	RelistPod  func(pleg.PodUID)
	// RelistPeriod is the first wait of a pod whose inspection hung, MaxQuarantine the
	// longest; both positive.
	RelistPeriod  time.Duration
	MaxQuarantine time.Duration
	// Inspectors is the number of pods inspected at once.
	Inspectors int
	// KubeletEvents: only differences between two answers cause events, as in the kubelet.
	KubeletEvents bool
	Logger        *slog.Logger
	Metrics       instrument.Registry
}

// Outputs are the channels to the stages behind the differ.
type Outputs struct {
	// Inspect are pods to inspect. It is closed after the last message to the inspector. Retry are
	// changes of pods in quarantine. Late is the change that was found after the last one was accepted.
	// Gone are changes that need no inspection.
	Inspect, Retry, Late, Gone chan<- stage.Change
	// Cancel ends inspections.
	Cancel chan<- stage.Cancel
	// Marks go to the dispatcher.
	Marks chan<- stage.Mark
}

// Differ is the loop around the machine. Its methods are safe for concurrent use, and none but
// Run blocks.
type Differ struct {
	opts     Options
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[request]
	hints    *mailbox.Box[*Announcement]

	machine machine
	// gone, cancel and marks contain messages that the other stages have not accepted yet.
	gone        []stage.Change
	cancel      []stage.Cancel
	marks       []stage.Mark
	quarantined atomic.Pointer[[]pleg.Quarantined]
}

// New returns a differ that does not run yet.
func New(o Options) (*Differ, error) {
	m, err := newMetrics(o.Metrics)
	d := &Differ{
		opts: o, log: o.Logger.With("stage", "differ"), metrics: m,
		requests: mailbox.New[request](), hints: mailbox.New[*Announcement](),
		machine: newMachine(o),
	}
	d.quarantined.Store(&[]pleg.Quarantined{})
	return d, err
}

// RequestReinspect requests an inspection of the pod at the next relist, whether or not
// it changed, even if it is quarantined or its inspection hangs; without a change its
// subscribers get a PodSync. If the next relist does not show the pod, the request is dropped.
func (d *Differ) RequestReinspect(uid pleg.PodUID) { d.requests.Put(request{uid, true, true}) }

// RequestRetry ends the wait of a quarantined pod, and an inspection that hangs.
func (d *Differ) RequestRetry(uid pleg.PodUID) { d.requests.Put(request{uid, true, false}) }

// EndWait ends the wait of a quarantined pod.
func (d *Differ) EndWait(uid pleg.PodUID) { d.requests.Put(request{uid, false, false}) }

// Announce notes a CRI event. A list that begins after Announce has returned serves the event.
func (d *Differ) Announce(a Announcement) { d.hints.Put(&a) }

// Quarantined returns the quarantined pods in the order in which their waits end.
// The slice must not be modified.
func (d *Differ) Quarantined() []pleg.Quarantined { return *d.quarantined.Load() }

// Run compares every listing and every observation with the records and sends the changes, until
// both channels are closed. It then closes Inspect and Marks, and returns once settled is closed
// too.
//
// One select feeds the inspector and listens to it. While the inspector is busy,
// changes wait in the queues, so that neither side ever waits for the other.
func (d *Differ) Run(listings <-chan stage.Listing, observations <-chan stage.Observation, settled <-chan stage.Settled, out Outputs) error {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	var all listing
	var one observation
	for listings != nil || observations != nil {
		now := time.Now()
		inspect, retry, again := d.machine.next(now)
		late := d.machine.late()
		stage.SetAlarm(alarm, again, now)
		var done stage.Settled
		var in input
		open := true
		select {
		case all.Listing, open = <-listings:
			d.takeMail()
			if in = &all; !open {
				listings = nil
			}
		case one.Observation, open = <-observations:
			d.takeMail()
			if in = &one; !open {
				observations = nil
			}
		case done = <-settled:
			d.cancel = slices.DeleteFunc(d.cancel, func(c stage.Cancel) bool { return c.UID == done.UID && done.How != stage.Hangs })
			if done.How != stage.NoEnding {
				in = settle{done}
			}
		case when(inspect != nil, out.Inspect) <- orZero(inspect):
			in = accepted{inspect}
		case when(retry != nil, out.Retry) <- orZero(retry):
			in = accepted{retry}
		case when(late != nil, out.Late) <- orZero(late):
			in = accepted{late}
		case when(len(d.gone) > 0, out.Gone) <- first(d.gone):
			pop(&d.gone)
		case when(len(d.cancel) > 0, out.Cancel) <- first(d.cancel):
			pop(&d.cancel)
		case when(len(d.marks) > 0, out.Marks) <- first(d.marks):
			pop(&d.marks)
		case <-d.requests.Wake():
			d.takeMail()
		case <-d.hints.Wake():
			d.takeMail()
		case <-alarm.C:
			in = elapsed{}
		}
		if open && in != nil {
			d.step(in)
		}
	}
	close(out.Inspect)
	close(out.Marks)
	for range settled {
	}
	return nil
}

// when returns the channel of a select case that is off unless a condition holds.
func when[T any](on bool, c chan<- T) chan<- T {
	if on {
		return c
	}
	return nil
}

// orZero returns the value of a pointer; zero for nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// first returns the first change of a queue, or the zero value.
func first[T any](queue []T) (item T) {
	if len(queue) > 0 {
		item = queue[0]
	}
	return item
}

// takeMail applies the CRI events and the requests that wait: an answer that comes after them
// must find them.
func (d *Differ) takeMail() {
	for _, a := range d.hints.Take() {
		d.step(*a)
	}
	for _, r := range d.requests.Take() {
		d.step(r)
	}
}

// step lets the machine apply an input and carries out the effects.
func (d *Differ) step(in input) {
	do := d.machine.step(in, time.Now())
	for _, args := range do.quarantined {
		d.log.Warn("pod quarantined, inspection hung", args...)
	}
	for _, args := range do.released {
		d.log.Info("pod released from quarantine", args...)
	}
	for _, t := range do.touch {
		d.opts.Cache.Touch(t.uid, t.at)
	}
	if !do.observe.IsZero() {
		d.opts.Cache.Observe(do.observe, do.pending)
	}
	for _, uid := range do.relist {
		d.opts.RelistPod(uid)
	}
	if do.relistSoon {
		d.opts.RelistSoon()
	}
	d.gone = append(d.gone, do.leaving...)
	d.cancel = append(d.cancel, do.cancel...)
	if !do.mark.Current.IsZero() {
		d.marks = append(d.marks, do.mark)
	}
	d.metrics.add(&do)
	if q := &d.machine.quarantines; q.changed {
		q.changed = false
		pods := q.published()
		d.quarantined.Store(&pods)
		d.metrics.quarantined.Set(float64(len(pods)))
	}
	d.metrics.queue.Set(float64(len(d.machine.queue)))
}

// pop removes the first of a queue.
func pop[T any](queue *[]T) {
	clear((*queue)[:1])
	*queue = (*queue)[1:]
}
