package invariants_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// call is one call of a store.
type call struct {
	method string
	uid    pleg.PodUID
	at     time.Time
	status *pleg.PodStatus
	err    error
	// pending are the pods of an Observe.
	pending []pleg.PodUID
}

func (c call) String() string {
	words := c.method
	if c.err != nil {
		words += "(error)"
	}
	if len(c.pending) > 0 {
		words += fmt.Sprint(c.pending)
	}
	return words
}

// recorder is a store that records its calls. Afterwards it calls do, unless that is nil.
type recorder struct {
	do    func()
	mu    sync.Mutex
	calls []call
}

func (l *recorder) record(c call) {
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	if l.do != nil {
		l.do()
	}
}

func (l *recorder) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	l.record(call{method: "Set", uid: uid, status: status, err: err, at: at})
}

func (l *recorder) Delete(uid pleg.PodUID, at time.Time) {
	l.record(call{method: "Delete", uid: uid, at: at})
}

func (l *recorder) Touch(uid pleg.PodUID, at time.Time) {
	l.record(call{method: "Touch", uid: uid, at: at})
}

func (l *recorder) Observe(at time.Time, pending []pleg.PodUID) {
	l.record(call{method: "Observe", at: at, pending: slices.Sorted(slices.Values(pending))})
}

func (l *recorder) all() []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// The embedder's store gets what the cache gets, in the order of the times, and before the
// event that it is about.
func TestStoreIsWrittenBesideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &recorder{}
		r := kit.New(t, pipeline.Options{Store: l})
		sub, err := r.Subscribe(pipeline.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for ev := range sub.Events() {
				if !slices.ContainsFunc(l.all(), func(c call) bool { return c.uid == "a" && !c.at.Before(ev.ObservedAt) }) {
					t.Errorf("%s before the store had it: %v", ev.Type, l.all())
				}
			}
		}()
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		synctest.Wait()
		r.Runtime.SetPodFault("a", plegtest.Fail(errInspect))
		r.Runtime.Set("a", "c=exited")
		kit.Relist(1)
		r.Runtime.SetPodFault("a", plegtest.Delay(1500*time.Millisecond)) // over a list that shows it unchanged
		kit.Relist(3)
		status, err := r.Cache().Get("a")
		if c := l.all()[len(l.all())-3]; c.method != "Set" || c.status != status || !errors.Is(c.err, err) {
			t.Errorf("the store got %+v, want what the cache has: %v, %v", c, status, err)
		}
		r.Runtime.SetPodFault("a", nil)
		r.Runtime.Remove("a")
		kit.Relist(1)
		want := "Observe[a] Set Observe[a] Set(error) Observe[a] Observe[a] Set Touch Observe Observe[a] Delete"
		if got := strings.Trim(fmt.Sprint(l.all()), "[]"); got != want {
			t.Errorf("calls: %s, want %s", got, want)
		}
		ofPod := slices.DeleteFunc(l.all(), func(c call) bool { return c.uid == "" })
		if !slices.IsSortedFunc(ofPod, func(a, b call) int { return a.at.Compare(b.at) }) {
			t.Errorf("the calls for the pod are not in the order of their times: %+v", ofPod)
		}
	})
}

// asked is a runtime that calls do in each method that must not block.
type asked struct {
	*plegtest.Runtime
	do func()
}

func (r asked) Calls() []pleg.Call { r.do(); return nil }
func (r asked) Degraded() error    { r.do(); return nil }

// A panic, a Goexit or a block in the embedder's other methods stops neither a stage
// nor a caller of Status. (The pipeline waits for a store that blocks.)
func TestInvariantEmbeddersCodeIsContained(t *testing.T) {
	var released chan struct{}
	panics := func() { panic("test") }
	for name, tc := range map[string]struct{ asked, written func() }{
		"panics": {panics, panics},
		"Goexit": {runtime.Goexit, runtime.Goexit},
		"blocks": {func() { <-released }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released = make(chan struct{})
				defer close(released)
				ill := asked{plegtest.New(), tc.asked}
				p := kit.New(t, pipeline.Options{Runtime: ill, Store: &recorder{do: tc.written}})
				events := p.Events(t, 0)
				ill.Set("hung", "c=running")
				ill.SetPodFault("hung", plegtest.Hang)
				p.Start(t)
				kit.Relist(3)
				ill.Set("fine", "c=running")
				kit.Relist(5) // the hung inspection is logged, with the runtime's calls
				kit.RequireEvents(t, events, "fine", "Started(c)")
				began := time.Now()
				p.Status()
				if healthy, _ := p.Healthy(); !healthy {
					t.Error("not healthy")
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("Status and Healthy took %v", took)
				}
				ill.Remove("fine")
				kit.Relist(2)
				kit.RequireEvents(t, events, "fine", "Died(c) Removed(c)")
			})
		})
	}
}

// A log handler that blocks stops no stage, and does not keep Run from returning.
func TestInvariantBlockedLogStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := kit.New(t, pipeline.Options{Logger: kit.BlockedLogger(release)})
		events, full := p.Events(t, 0), p.Events(t, 1)
		p.Runtime.Set("sick", "c=running")
		p.Runtime.SetPodFault("sick", plegtest.Fail(errInspect))
		p.Runtime.Set("well", "c=running")
		p.StartBetweenLists(t)
		kit.RequireEvents(t, events, "well", "Started(c)")
		p.Runtime.SetListFault(plegtest.Fail(errInspect))
		kit.Relist(2)
		p.Runtime.SetListFault(nil)
		p.Runtime.Set("well", "c=exited d=running")
		kit.Relist(2)
		kit.RequireEvents(t, events, "well", "Died(c) Started(d)")
		if len(full) == 0 {
			t.Error("the subscriber with the full buffer got nothing")
		}
		began := time.Now()
		_ = p.Stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Run returned %v after its end, want it within 2 s", took)
		}
	})
}
