package differ_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// show sends a listing made while a stream of events was up.
func (b *bed) show(pods ...*pleg.Pod) {
	b.lists++
	b.listings <- stage.Listing{At: at(b.lists), Pods: pods, Announced: true}
	synctest.Wait()
}

// showBroken sends a listing after a stream of events has ended.
func (b *bed) showBroken(pods ...*pleg.Pod) {
	b.lists++
	b.listings <- stage.Listing{At: at(b.lists), Pods: pods, Announced: true, Broken: true}
	synctest.Wait()
}

// end settles everything that can be had, with the same end.
func (b *bed) end(err error) {
	for {
		c, ok := b.poll()
		if !ok {
			return
		}
		b.settle(c.UID, err)
	}
}

func TestMissedEventsAreWhatAListingShowsUnannounced(t *testing.T) {
	running, exited := plegtest.Pod("a", "c=running"), plegtest.Pod("a", "c=exited")
	for name, tc := range map[string]struct {
		happens func(b *bed)
		want    float64
	}{
		"announced by nothing": {func(b *bed) { b.show(exited) }, 1},
		"a pod that is gone":   {func(b *bed) { b.show() }, 2}, // died and removed
		"a new pod":            {func(b *bed) { b.show(running, plegtest.Pod("b", "d=running /s=running")) }, 2},
		"nothing changed":      {func(b *bed) { b.show(running) }, 0},
		"created":              {func(b *bed) { b.show(plegtest.Pod("a", "c=running d=created")) }, 0},
		"no stream was up":     {func(b *bed) { b.list(exited) }, 0},
		"the stream broke":     {func(b *bed) { b.showBroken(exited) }, 1},
		"the stream broke, and a new one announces it": {func(b *bed) {
			b.showBroken(exited)
			time.Sleep(4 * time.Second)
			b.hear(-1, hint("a", "c=exited", "c=exited"))
		}, 0},
		"announced a moment later": {func(b *bed) {
			b.show(exited)
			time.Sleep(4 * time.Second)
			b.hear(-1, hint("a", "c=exited", "c=exited"))
		}, 0},
		"announced too late": {func(b *bed) {
			b.show(exited)
			time.Sleep(6 * time.Second)
			b.hear(-1, hint("a", "c=exited", "c=exited"))
		}, 1},
		"announced by a later step": {func(b *bed) {
			b.show(exited)
			b.hear(-1, hint("a", "c=removed", "-"))
		}, 0},
		"announced by an event that told nothing else": {func(b *bed) {
			b.hear(1, hint("a", "c=exited", "-"))
			time.Sleep(4 * time.Second)
			b.show(exited)
		}, 0},
		"announced long ago": {func(b *bed) {
			b.hear(1, hint("a", "c=exited", "-"))
			time.Sleep(6 * time.Second)
			b.show(exited)
		}, 1},
		"announced for another container": {func(b *bed) {
			b.hear(1, hint("a", "d=exited", "-"))
			b.show(exited)
		}, 1},
		"announced in full": {func(b *bed) {
			b.hear(1, hint("a", "c=exited", "c=exited"))
			b.end(nil)
			b.show(exited)
		}, 0},
		"announced in full, and its inspection fails": {func(b *bed) {
			b.hear(1, hint("a", "c=exited", "c=exited"))
			b.end(errInspect)
			b.show(exited)
		}, 0},
		"shown again and again, since its inspection fails": {func(b *bed) {
			for range 3 {
				b.show(exited)
				b.end(errInspect)
				time.Sleep(6 * time.Second)
			}
		}, 1},
		"shown while an inspection is under way": {func(b *bed) {
			b.hear(1, hint("a", "d=running", "c=running d=running"))
			b.show(plegtest.Pod("a", "c=exited d=running"))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.list(running)
				b.end(nil)
				tc.happens(b)
				b.end(nil)
				time.Sleep(time.Minute)
				b.list()
				if got := b.counter(t, "pleg_missed_events_total"); got != tc.want {
					t.Errorf("missed events = %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// attempts writes a pod of containers with one name, such as 0, 1, 2.
func attempts(numbers ...uint32) *pleg.Pod {
	p := plegtest.Pod("a", "")
	for _, n := range numbers {
		p.Containers = append(p.Containers, &pleg.Container{
			ID: pleg.ContainerID('a' + rune(n)), Name: "main", Attempt: n, State: pleg.StateRunning,
		})
	}
	return p
}

func TestSkippedAttempts(t *testing.T) {
	other := attempts(7)
	other.Containers[0].Name = "other"
	for name, tc := range map[string]struct {
		old, cur *pleg.Pod
		want     int
	}{
		"new pod":                   {nil, attempts(5), 0},
		"gone":                      {attempts(5), nil, 0},
		"the same":                  {attempts(5), attempts(5), 0},
		"the next":                  {attempts(5), attempts(6, 5), 0},
		"one skipped":               {attempts(5), attempts(7, 5), 1},
		"three skipped, old gone":   {attempts(5), attempts(9), 3},
		"two new, one between":      {attempts(5), attempts(8, 6), 1},
		"two new, none between":     {attempts(5), attempts(7, 6, 5), 0},
		"an older one comes back":   {attempts(5), attempts(5, 2), 0},
		"a container of a new name": {attempts(5), other, 0},
		"the newest known counts":   {attempts(5, 3), attempts(6, 5), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differ.SkippedAttempts(tc.old, tc.cur); got != tc.want {
				t.Errorf("skipped = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSkippedAttemptsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(attempts(0))
		b.end(nil)
		for range 3 {
			b.list(attempts(3))
			b.end(errInspect)
		}
		b.list(attempts(3))
		b.end(nil)
		if got := b.counter(t, "pleg_missed_attempts_total"); got != 2 {
			t.Errorf("missed attempts = %v, want 2", got)
		}
	})
}
