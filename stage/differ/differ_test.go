package differ_test

import (
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Each case is a story of pod a: what the listings show and what the inspector
// answers. A step checks what comes out of it.
func TestChangesOfAPod(t *testing.T) {
	runs, ended := "c=running /s=running", "c=exited /s=running"
	list := func(words string) func(*testing.T, *bed) {
		return func(_ *testing.T, b *bed) { b.list(plegtest.Pod("a", words)) }
	}
	takes := func(words string) func(*testing.T, *bed) {
		return func(t *testing.T, b *bed) { b.take(t, "a", words); b.requireQuiet(t) }
	}
	known := func(words string) func(*testing.T, *bed) {
		return func(t *testing.T, b *bed) { b.takeKnown(t, "a", words); b.requireQuiet(t) }
	}
	gone := func(_ *testing.T, b *bed) { b.list() }
	works := func(_ *testing.T, b *bed) { b.settle("a", nil) }
	fails := func(_ *testing.T, b *bed) { b.settle("a", errInspect) }
	quiet := func(t *testing.T, b *bed) { b.requireQuiet(t) }
	request := func(_ *testing.T, b *bed) { b.request("a") }

	for name, steps := range map[string][]func(*testing.T, *bed){
		"an unchanged pod is quiet": {
			list(runs), takes("Started(c) Started(/s)"), works, list(runs), quiet, list(runs), quiet,
		},
		"only what changed since": {
			list(runs), takes("Started(c) Started(/s)"), works, list(ended), takes("Died(c)"), works, list(ended), quiet,
		},
		"a created container is inspected": {
			list("c=created"), takes("Changed(c)"), works, list("c=unknown"), quiet, list("c=running"), takes("Started(c)"),
		},
		"a failed inspection waits for the next listing, and the change is found again": {
			list(runs), takes("Started(c) Started(/s)"), fails, quiet, list(runs), takes("Started(c) Started(/s)"),
			works, quiet, list(runs), quiet,
		},
		"a retry tells the newest state": {
			list(runs), takes("Started(c) Started(/s)"), works, list(ended), takes("Died(c)"), fails,
			list("d=running c=exited /s=running"), takes("Died(c) Started(d)"),
		},
		"ended and back while it failed is one PodSync": {
			list(runs), takes("Started(c) Started(/s)"), works, list(ended), takes("Died(c)"), fails,
			list(runs), takes("PodSync"), works, list(runs), quiet,
		},
		"a request is one PodSync at the next listing": {
			list(runs), takes("Started(c) Started(/s)"), works, request, quiet, list(runs), takes("PodSync"),
			works, list(runs), quiet,
		},
		"a request with a change is that change": {
			list(runs), takes("Started(c) Started(/s)"), works, request, list(ended), takes("Died(c)"), works, list(ended), quiet,
		},
		"a request made during the inspection survives it": {
			list(runs), takes("Started(c) Started(/s)"), request, works, quiet, list(runs), takes("PodSync"),
		},
		"a request and the answer of a newer listing": {
			list(runs), takes("Started(c) Started(/s)"), request, list(runs), quiet, works, takes("PodSync"),
		},
		"what changes in flight is told at once when it settles": {
			list(runs), takes("Started(c) Started(/s)"), list(ended), quiet, works, takes("Died(c)"), works, quiet,
		},
		"many changes in flight are one": {
			list(runs), takes("Started(c) Started(/s)"), list(ended), list("c=exited /s=exited"),
			list("d=running c=exited /s=running"), quiet, works, takes("Died(c) Started(d)"), works, quiet,
		},
		"changed and back in flight is nothing": {
			list(runs), takes("Started(c) Started(/s)"), list(ended), list(runs), works, quiet, list(runs), quiet,
		},
		"after a failure what was listed in flight waits for the next listing": {
			list(runs), takes("Started(c) Started(/s)"), list(ended), fails, quiet, list(ended), takes("Died(c) Started(/s)"),
		},
		"gone": {
			list(runs), takes("Started(c) Started(/s)"), works, gone, known("Died(c) Removed(c) Died(/s) Removed(/s)"),
			works, gone, quiet,
		},
		"gone after it had ended": {
			list("c=exited /s=exited"), takes("Died(c) Died(/s)"), works, gone, known("Removed(c) Removed(/s)"),
		},
		"gone and back is new": {
			list(runs), takes("Started(c) Started(/s)"), works, gone, known("Died(c) Removed(c) Died(/s) Removed(/s)"),
			works, list(runs), takes("Started(c) Started(/s)"),
		},
		"gone in flight": {
			list(runs), takes("Started(c) Started(/s)"), gone, quiet, works, known("Died(c) Removed(c) Died(/s) Removed(/s)"),
			works, quiet, gone, quiet,
		},
		"gone in flight and back as it was": {
			list(runs), takes("Started(c) Started(/s)"), gone, list(runs), works, quiet,
		},
		"gone in flight and back with another container": {
			list(runs), takes("Started(c) Started(/s)"), gone, list("d=running /s=running"), works,
			takes("Died(c) Removed(c) Started(d)"),
		},
		"back while its removal is under way": {
			list(runs), takes("Started(c) Started(/s)"), works, gone, known("Died(c) Removed(c) Died(/s) Removed(/s)"),
			list(runs), quiet, works, takes("Started(c) Started(/s)"),
		},
		"gone although its last inspection failed": {
			list(runs), takes("Started(c) Started(/s)"), works, list(ended), takes("Died(c)"), fails,
			gone, known("Died(c) Removed(c) Died(/s) Removed(/s)"), works, gone, quiet,
		},
		"gone before any inspection succeeded": {
			list(runs), takes("Started(c) Started(/s)"), fails, gone, known("PodSync"), works, gone, quiet,
		},
		"gone before any change": {list(""), quiet, gone, quiet},
		"gone after its last container went": {
			list("c=exited"), takes("Died(c)"), works, list(""), takes("Removed(c)"), works, gone, known(""),
		},
		"requested and gone is its removal": {
			list(runs), takes("Started(c) Started(/s)"), works, request, gone, known("Died(c) Removed(c) Died(/s) Removed(/s)"),
		},
		"requested before it exists": {
			request, list(runs), takes("Started(c) Started(/s)"), works, list(runs), quiet,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				for i, step := range steps {
					if step(t, b); t.Failed() {
						t.Fatalf("at step %d", i)
					}
				}
			})
		})
	}
}

func TestChangeHasTheNewestObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := plegtest.Pod("a", "c=running")
		b.list(pod)
		if c := b.take(t, "a", "Started(c)"); c.Pod != pod || !c.At.Equal(at(1)) || c.Anew {
			t.Errorf("change = %+v, want the listed pod at %v, not anew", c, at(1))
		}
		b.list(plegtest.Pod("a", "c=exited"))
		newest := plegtest.Pod("a", "")
		b.list(newest)
		b.settle("a", nil)
		if c := b.take(t, "a", "Died(c) Removed(c)"); c.Pod != newest || !c.At.Equal(at(3)) {
			t.Errorf("change = %+v, want the newest listed pod at %v", c, at(3))
		}
		b.settle("a", nil)
		b.list()
		if c := b.takeKnown(t, "a", ""); !c.At.Equal(at(4)) {
			t.Errorf("removal at %v, want %v", c.At, at(4))
		}
	})
}

func TestRequestIsAnewUntilAnInspectionSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := plegtest.Pod("a", "c=running")
		b.request("a")
		for _, err := range []error{errInspect, errInspect, nil} {
			b.list(pod)
			if c := b.take(t, "a", "Started(c)"); !c.Anew {
				t.Error("Anew = false, want true until an inspection has succeeded")
			}
			b.settle("a", err)
		}
		b.list(plegtest.Pod("a", "c=exited"))
		if c := b.take(t, "a", "Died(c)"); c.Anew {
			t.Error("Anew = true after the request was served")
		}
	})
}

func TestRequestOfAPodTheNextListingDoesNotShowIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.request("a")
		b.list()
		b.list(plegtest.Pod("a", "c=running"))
		if c := b.take(t, "a", "Started(c)"); c.Anew {
			t.Error("Anew = true, want the request forgotten")
		}
	})
}

func TestPodListedTwiceCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", ""), plegtest.Pod("a", "c=exited"))
		b.take(t, "a", "Started(c)")
		b.settle("a", nil)
		b.requireQuiet(t)
		if b.cache.pending[0] != "a" || len(b.cache.pending) != 1 {
			t.Errorf("pending = %v, want a once", b.cache.pending)
		}
	})
}

func TestRunningPodsGoBeforeDeadOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("dead", "c=exited /s=exited"), plegtest.Pod("runs", "c=running"),
			plegtest.Pod("dead2", "c=exited"), plegtest.Pod("ready", "/s=running"))
		var order []pleg.PodUID
		for range 4 {
			order = append(order, (<-b.inspect).UID)
		}
		want := [4]pleg.PodUID{"runs", "ready", "dead", "dead2"}
		if [4]pleg.PodUID(order) != want {
			t.Errorf("order = %v, want %v", order, want)
		}
	})
}
