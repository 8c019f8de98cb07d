//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// record keeps the events that one observer of a lab reported.
type record struct {
	observer string
	// raw, if not nil, knows the exit codes that can be had; then others need
	// not be in the events.
	raw *arrivals

	mu       sync.Mutex
	byPod    map[pleg.PodUID][]pleg.Event
	last     pleg.Event
	problems []string
}

func newRecord(observer string) *record {
	return &record{observer: observer, byPod: make(map[pleg.PodUID][]pleg.Event)}
}

// add notes an event, and a problem if it breaks what every event promises.
func (r *record) add(ev pleg.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ev.Seq <= r.last.Seq {
		r.problemLocked("event %d came after %d", ev.Seq, r.last.Seq)
	}
	of := r.byPod[ev.PodUID]
	if len(of) > 0 && ev.ObservedAt.Before(of[len(of)-1].ObservedAt) {
		r.problemLocked("%s: observed earlier than the event of this pod before it", describe(ev))
	}
	if ev.ObservedAt.IsZero() || ev.ObservedAt.After(time.Now()) {
		r.problemLocked("%s: observed at %v", describe(ev), ev.ObservedAt)
	}
	r.last = ev
	r.byPod[ev.PodUID] = append(of, ev)
}

func (r *record) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problemLocked(format, args...)
}

func (r *record) problemLocked(format string, args ...any) {
	r.problems = append(r.problems, r.observer+": "+fmt.Sprintf(format, args...))
}

func (r *record) events(uid pleg.PodUID) []pleg.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byPod[uid])
}

// check fails the test if there was a problem, or events of pods that the
// ledger does not know.
func (r *record) check(t *testing.T, l *lab.Lab) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.problems {
		t.Error(p)
	}
	for uid, events := range r.byPod {
		if len(l.Ledger().Pod(string(uid))) == 0 {
			t.Errorf("%s: events of unknown pod %s: %v", r.observer, uid, events)
		}
	}
}

// await returns once the events of a pod equal its ledger. Called after every
// step, it proves the order of the events: what was equal only grows.
func await(ctx context.Context, l *lab.Lab, uid string, observers ...*record) error {
	for _, r := range observers {
		var diff string
		var early bool
		err := eventually(ctx, func() bool {
			events, entries := r.events(pleg.PodUID(uid)), l.Ledger().Pod(uid)
			if r.raw != nil {
				events = r.raw.forgive(events, entries)
			}
			diff, early = compare(events, entries)
			return diff == "" || !early
		})
		if diff != "" {
			return fmt.Errorf("%s: pod %s: %w: %s", r.observer, uid, errors.Join(err, errDiffer), diff)
		}
	}
	return nil
}

var errDiffer = errors.New("events differ from the ledger")

// eventually returns nil once f returns true, and an error if it takes longer
// than a step may.
func eventually(ctx context.Context, f func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !f() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// compare says how the events of a pod differ from its ledger; empty if not at
// all. early means that the events so far are right and that more must come.
func compare(events []pleg.Event, entries []lab.Entry) (diff string, early bool) {
	got, want := make(map[string][]string), make(map[string][]string)
	for _, ev := range events {
		got[string(ev.ContainerID)] = append(got[string(ev.ContainerID)], describe(ev))
	}
	for _, e := range entries {
		if e.Step != lab.Created { // made, not run: nothing to tell a subscriber
			want[e.ContainerID] = append(want[e.ContainerID], describeEntry(e))
		}
	}
	early = true
	var lines []string
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		g, w := got[id], want[id]
		if slices.Equal(g, w) {
			continue
		}
		lines = append(lines, fmt.Sprintf("\n  %.12s: got %q\n   %9s want %q", id, g, "", w))
		if len(g) >= len(w) || !slices.Equal(g, w[:len(g)]) {
			early = false
		}
	}
	return strings.Join(lines, ""), early
}

func describe(ev pleg.Event) string {
	s := fmt.Sprintf("%s %s/%s %s#%d", ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName, ev.Attempt)
	if ev.Sandbox {
		s += " sandbox"
	}
	if ev.ExitCode != nil {
		s += fmt.Sprintf(" exit %d %s", *ev.ExitCode, ev.Reason)
	}
	return s
}

func describeEntry(e lab.Entry) string {
	name := e.ContainerName
	if e.Sandbox {
		name = e.PodName // a sandbox has no other name
	}
	s := fmt.Sprintf("Container%s %s/%s %s#%d", e.Step, e.PodNamespace, e.PodName, name, e.Attempt)
	if e.Sandbox {
		return s + " sandbox"
	}
	if e.Step == lab.Died {
		s += fmt.Sprintf(" exit %d %s", e.ExitCode, e.Reason)
	}
	return s
}
