package model_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// observation is one listing of a pod that the pipeline acted on, until it settled.
type observation struct {
	of      *listing
	start   time.Duration // when its inspection began, or its events came
	settled time.Duration
	call    *inspection // nil if the pod was gone
	// quarantined is set if the pod is in quarantine afterwards.
	quarantined bool
}

func (o *observation) succeeded() bool { return o.call == nil || o.call.status != nil }

// markQuarantined marks the observations after which the pod is in quarantine.
func (r *replay) markQuarantined(observations []*observation) {
	quarantined := false
	for _, o := range observations {
		hung := o.call != nil && (o.call.ended || o.call.end-o.call.start >= freeHungAfter)
		quarantined = !o.succeeded() && (quarantined || hung)
		o.quarantined = quarantined
	}
}

// mayWait reports whether the next inspection after an observation may have waited for
// the end of the quarantine, or for one of the inspectors left to quarantined pods.
func (r *replay) mayWait(o *observation) bool {
	rt := r.freeRun.runtime
	return o != nil && o.quarantined && (r.freeRun.quarantine > 1 || rt.inspectors/2 < len(rt.history.pods))
}

// replay shows one pod's observations to a reference of its own.
type replay struct {
	t       *testing.T
	freeRun *freeRun
	uid     pleg.PodUID

	ref    *serial.PLEG
	events chan pleg.Event
	got    []pleg.Event
	// listings are those with the pod, in the order of their starts. A listing that
	// ended after a later one is left out.
	listings []*listing

	current *observation // what the reference may inspect; nil for nothing
	when    string
}

func newReplay(t *testing.T, b *freeRun, uid pleg.PodUID) *replay {
	r := &replay{t: t, freeRun: b, uid: uid, events: make(chan pleg.Event, modelBuffer)}
	r.ref = serial.New(r, r.events, freeInspectTimeout)
	for _, l := range b.runtime.listings {
		of := l.only == "" || l.only == uid
		if n := len(r.listings); of && (n == 0 || l.at > r.listings[n-1].at) {
			r.listings = append(r.listings, l)
		}
	}
	return r
}

// ListPods is not used: the listings are applied.
func (r *replay) ListPods(context.Context) ([]*pleg.Pod, error) { return nil, nil }

// PodStatus returns what the pipeline got.
func (r *replay) PodStatus(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
	if r.current == nil || r.current.call == nil {
		r.t.Errorf("pod %s, %s: the pipeline made no inspection, the reference does", r.uid, r.when)
		return nil, errScripted
	}
	call := r.current.call
	r.current = nil
	return call.status, call.err
}

// run replays the observations and, between two of them, the listings that the pipeline
// had time for but did not act on.
func (r *replay) run() {
	if r.joined() {
		return
	}
	observations := r.observations()
	r.markQuarantined(observations)
	var last *observation
	for _, o := range observations {
		r.skipped(last, o)
		r.prompt(last, o)
		if last != nil && r.asked(last.of.done, o.start) || last == nil && r.asked(0, o.start) {
			r.ref.RequestReinspect(r.uid)
		}
		r.when = fmt.Sprintf("list of %v", o.of.at)
		r.current = o
		r.apply(o.of)
		if o.call != nil && r.current != nil {
			r.t.Errorf("pod %s, %s: the pipeline inspected it for no reason", r.uid, r.when)
		}
		r.current = nil
		last = o
	}
	r.skipped(last, nil)
	r.waits(observations)
	sameEvents(r.t, "the whole run", r.uid, r.got, kit.ByPod(kit.Drain(r.events))[r.uid])
	sameStatus(r.t, "the end", r.uid, r.freeRun.p, r.ref)
}

// joined reports whether a list of the pod and one of all pods ran at the same time and
// showed different things. The two are joined then, and the reference knows only one list
// at a time (stage/differ enumerates what becomes of them).
func (r *replay) joined() bool {
	if slices.ContainsFunc(r.freeRun.runtime.inspections[r.uid], func(i *inspection) bool { return i.of == nil }) {
		return true
	}
	lists := r.freeRun.runtime.listings
	return slices.ContainsFunc(lists, func(one *listing) bool {
		return one.only == r.uid && slices.ContainsFunc(lists, func(all *listing) bool {
			return all.only == "" && one.at <= all.done && all.at <= one.done &&
				(one.at == all.at || !reflect.DeepEqual(one.pods[r.uid], all.pods[r.uid]))
		})
	})
}

func (r *replay) apply(l *listing) {
	var pods []*pleg.Pod
	if pod := l.pods[r.uid]; pod != nil {
		pods = append(pods, pod)
	}
	r.ref.Apply(r.t.Context(), r.freeRun.runtime.start.Add(l.at), pods)
}

// observations are the pod's inspections, and the listings without it that
// caused events.
func (r *replay) observations() []*observation {
	acted := make(map[time.Duration]*observation)
	for _, call := range r.freeRun.runtime.inspections[r.uid] {
		if !slices.Contains(r.listings, call.of) {
			r.t.Errorf("pod %s is inspected for the list of %v, which had been overtaken", r.uid, call.of.at)
		}
		acted[call.of.at] = &observation{of: call.of, start: call.start, settled: call.end, call: call}
	}
	for _, e := range r.freeRun.events {
		if e.PodUID != r.uid {
			continue
		}
		r.got = append(r.got, e.Event)
		at := e.ObservedAt.Sub(r.freeRun.runtime.start)
		if o := acted[at]; o != nil {
			if e.when != o.settled {
				r.t.Errorf("%s came at %v, want it as the pod settled at %v", plegtest.Words(e.Event), e.when, o.settled)
			}
			continue
		}
		i := slices.IndexFunc(r.listings, func(l *listing) bool { return l.at == at && l.pods[r.uid] == nil })
		if i < 0 {
			r.t.Errorf("%s speaks of no inspection and no listing without the pod", plegtest.Words(e.Event))
			continue
		}
		acted[at] = &observation{of: r.listings[i], start: e.when, settled: e.when}
	}
	return slices.SortedFunc(maps.Values(acted), func(a, b *observation) int { return cmp.Compare(a.of.at, b.of.at) })
}

// prompt requires that the pipeline acts on a listing as soon as it comes, or as soon as
// the pod's running inspection settles. Only a pod that is not gone may wait, and only
// for an inspector.
func (r *replay) prompt(last, o *observation) {
	if o.call != nil && r.freeRun.runtime.inspectors < len(r.freeRun.runtime.history.pods) {
		return
	}
	if o.call != nil && r.mayWait(last) {
		return
	}
	want := o.of.done
	if last != nil && last.settled > want {
		want = last.settled
	}
	if o.start != want {
		r.t.Errorf("pod %s: acted on the list of %v at %v, want at %v", r.uid, o.of.at, o.start, want)
	}
}

// skipped requires that the listings between two observations gave no reason to act.
// Either observation may be nil.
func (r *replay) skipped(from, to *observation) {
	for _, l := range r.passedOver(from, to) {
		r.when = fmt.Sprintf("list of %v, not acted on", l.at)
		r.apply(l)
	}
}

// passedOver returns the listings between two observations that the pipeline compared and
// found unchanged. Of the listings that came while the first was inspected only the
// newest counts, if the inspection succeeded and the second is not newer.
func (r *replay) passedOver(from, to *observation) []*listing {
	if r.mayWait(from) {
		if to == nil {
			r.t.Errorf("pod %s hung at %v and was never inspected again", r.uid, from.settled)
		}
		return nil // these may have come during its wait
	}
	var meanwhile *listing
	var idle []*listing
	for _, l := range r.listings {
		if from != nil && l.at <= from.of.at || to != nil && l.at >= to.of.at {
			continue
		}
		switch {
		case from == nil || l.done > from.settled:
			idle = append(idle, l)
		case l.done < from.settled && from.succeeded():
			meanwhile = l
		}
	}
	if meanwhile != nil && (to == nil || to.of.done >= from.settled) {
		idle = slices.Insert(idle, 0, meanwhile)
	}
	return idle
}

// asked reports whether a reinspection was asked for in a span of time.
func (r *replay) asked(from, to time.Duration) bool {
	return slices.ContainsFunc(r.freeRun.runtime.history.requests[r.uid], func(at time.Duration) bool {
		return from <= at && at <= to
	})
}
