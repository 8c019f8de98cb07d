package differ_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// hint is an event about a container, such as "c=exited" or "c=removed", of a
// pod that then is as the words say; "-" are the words of one that does not say.
func hint(uid pleg.PodUID, event, words string) *pleg.Hint {
	h := &pleg.Hint{UID: uid}
	id, state, _ := strings.Cut(event, "=")
	h.Container = pleg.ContainerID(strings.TrimPrefix(id, "/"))
	if h.Removed = state == "removed"; h.Removed {
		state = "exited"
	}
	h.State = plegtest.Pod("", "x="+state).Containers[0].State
	if words != "-" {
		h.Pod = plegtest.Pod(uid, words)
	}
	return h
}

// hear has the differ hear of an event that was made n tenths of a second after
// the newest listing began.
func (b *bed) hear(n int, h *pleg.Hint) {
	b.observe(stage.Observation{UID: h.UID, At: at(b.lists).Add(time.Duration(n) * time.Second / 10), Hint: h})
}

func (b *bed) observe(o stage.Observation) {
	b.observations <- o
	synctest.Wait()
}

// settled lists pods and has all that follows succeed.
func (b *bed) settledList(t *testing.T, pods ...*pleg.Pod) {
	t.Helper()
	b.list(pods...)
	for {
		c, ok := b.poll()
		if !ok {
			return
		}
		b.settle(c.UID, nil)
	}
}

func full(h *pleg.Hint) *pleg.Hint {
	h.Status = plegtest.Status(h.Pod)
	return h
}

func TestHintIsComparedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct{ before, event, pod, want string }{
		"new pod":           {"", "/s=running", "/s=running", "Started(/s)"},
		"started":           {"/s=running", "c=running", "c=running /s=running", "Started(c)"},
		"exited":            {"c=running /s=running", "c=exited", "c=exited /s=running", "Died(c)"},
		"removed":           {"c=exited /s=running", "c=removed", "/s=running", "Removed(c)"},
		"created":           {"/s=running", "c=created", "c=created /s=running", "Changed(c)"},
		"a second sandbox":  {"c=exited /s=exited", "/t=running", "/t=running", "Started(/t)"},
		"more than it says": {"c=running d=running /s=running", "c=exited", "c=exited d=exited /s=running", "Died(c) Died(d)"},
	} {
		for _, withStatus := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", with a status: ", withStatus), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					if tc.before != "" {
						b.settledList(t, plegtest.Pod("a", tc.before))
					} else {
						b.settledList(t)
					}
					h := hint("a", tc.event, tc.pod)
					if withStatus {
						h = full(h)
					}
					b.hear(1, h)
					c := b.take(t, "a", tc.want)
					if got, want := c.Status != nil, withStatus && name != "a second sandbox"; got != want {
						t.Errorf("has a status: %v, want %v", got, want)
					}
					if want := at(1).Add(time.Second / 10); !c.At.Equal(want) {
						t.Errorf("change at %v, want the time of the event %v", c.At, want)
					}
					b.requireQuiet(t)
				})
			})
		}
	}
}

// An event's status stands for the pod's only if it is that of all of the pod
// as it is known now.
func TestStatusOfAHintThatDoesNotTellAllIsNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(*pleg.Hint){
		"no status":               func(h *pleg.Hint) { h.Status = nil },
		"lacks a container":       func(h *pleg.Hint) { h.Status.Containers = nil },
		"lacks the sandbox":       func(h *pleg.Hint) { h.Status.Sandboxes = nil },
		"another container state": func(h *pleg.Hint) { h.Status.Containers[0].State = pleg.StateCreated },
		"another sandbox state":   func(h *pleg.Hint) { h.Status.Sandboxes[0].Ready = false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.settledList(t, plegtest.Pod("a", "/s=running"))
				h := full(hint("a", "c=running", "c=running /s=running"))
				spoil(h)
				b.hear(1, h)
				if c := b.take(t, "a", "Started(c)"); c.Status != nil {
					t.Error("the status was used")
				}
			})
		})
	}
}

func TestRequestedReinspectionAsksInSpiteOfAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "c=running"))
		b.request("a")
		b.hear(1, full(hint("a", "c=exited", "c=exited")))
		if c := b.take(t, "a", "Died(c)"); !c.Anew || c.Status != nil {
			t.Errorf("anew: %v, has a status: %v, want it asked for anew", c.Anew, c.Status != nil)
		}
	})
}

func TestOlderObservationsAreStale(t *testing.T) {
	old := at(1).Add(-time.Second)
	for name, tc := range map[string]struct {
		hear  []*pleg.Hint // one tenth of a second apart
		late  stage.Observation
		stale float64
	}{
		"an event from before the listing": {late: stage.Observation{At: old, Hint: hint("a", "c=exited", "c=exited")}, stale: 1},
		"a relist from before the listing": {late: stage.Observation{At: old, Pod: plegtest.Pod("a", "c=exited")}, stale: 1},
		"a pod gone before the listing":    {late: stage.Observation{At: old}, stale: 1},
		"an unknown pod gone before it":    {late: stage.Observation{UID: "x", At: old}, stale: 1},
		"the same event again": {
			hear:  []*pleg.Hint{hint("a", "c=running", "c=running")},
			late:  stage.Observation{At: at(1).Add(time.Second / 10), Hint: hint("a", "c=running", "c=running")},
			stale: 1,
		},
		"an event from before another": {
			hear:  []*pleg.Hint{nil, hint("a", "c=running", "c=running")},
			late:  stage.Observation{At: at(1).Add(time.Second / 10), Hint: hint("a", "c=exited", "c=exited")},
			stale: 1,
		},
		"an event that only repeats, though": {late: stage.Observation{At: at(2), Hint: hint("a", "c=running", "c=running")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.settledList(t, plegtest.Pod("a", "c=running"))
				for n, h := range tc.hear {
					if h != nil {
						b.hear(n+1, h)
					}
				}
				if tc.late.UID == "" {
					tc.late.UID = "a"
				}
				before := b.cache.touched[tc.late.UID]
				b.observe(tc.late)
				b.requireQuiet(t)
				if got := b.counter(t, "pleg_stale_observations_total"); got != tc.stale {
					t.Errorf("stale observations = %v, want %v", got, tc.stale)
				}
				want := before
				if tc.stale == 0 {
					want = tc.late.At
				}
				if got := b.cache.touched[tc.late.UID]; !got.Equal(want) {
					t.Errorf("touched at %v, want %v", got, want)
				}
			})
		})
	}
}

func (b *bed) counter(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Out of order, but each newer than what is known: containers go only forward.
func TestHintTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "c=exited d=running /s=exited"))
		b.hear(1, full(hint("a", "d=running", "c=running d=running /s=running")))
		b.hear(2, full(hint("a", "c=created", "c=created")))
		b.requireQuiet(t)
		b.hear(3, full(hint("a", "d=exited", "c=running d=exited /s=running")))
		if c := b.take(t, "a", "Died(d)"); c.Status != nil {
			t.Error("a status that lags behind was used")
		}
	})
}

func TestHintOfAFailedPodTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "c=running"))
		b.take(t, "a", "Started(c)")
		b.settle("a", errInspect)
		if got := b.retries.Load(); got != 1 {
			t.Errorf("listings asked for after a failure = %d, want 1", got)
		}
		b.hear(1, hint("a", "c=exited", "c=exited"))
		b.take(t, "a", "Died(c)")
		b.settle("a", errInspect)
		b.hear(2, full(hint("a", "c=exited", "c=exited")))
		b.take(t, "a", "Died(c)")
		b.settle("a", nil)
		b.list(plegtest.Pod("a", "c=exited"))
		b.requireQuiet(t)
	})
}
