package invariants_test

import (
	"errors"
	"fmt"
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

// recorder is a store that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []call
}

func (l *recorder) record(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
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

// of returns the calls for one pod or for all pods so far.
func (l *recorder) of(uid pleg.PodUID) []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.calls), func(c call) bool { return c.uid != uid && c.uid != "" })
}

// The embedder's store gets what the cache gets.
func TestStoreIsWrittenBesideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &recorder{}
		r := kit.New(t, pipeline.Options{Store: l})
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		synctest.Wait()
		r.Runtime.SetPodFault("a", plegtest.Fail(errInspect))
		r.Runtime.Set("a", "c=exited")
		kit.Relist(1)
		r.Runtime.SetPodFault("a", plegtest.Delay(1500*time.Millisecond)) // over a list that shows it unchanged
		kit.Relist(1)
		kit.Relist(1)
		kit.Relist(1)
		status, err := r.Cache().Get("a")
		set := l.of("a")
		r.Runtime.SetPodFault("a", nil)
		r.Runtime.Remove("a")
		kit.Relist(1)
		want := "Observe[a] Set Observe[a] Set(error) Observe[a] Observe[a] Set Touch Observe Observe[a] Delete"
		if got := strings.Trim(fmt.Sprint(l.of("a")), "[]"); got != want {
			t.Errorf("calls: %s, want %s", got, want)
		}
		i := len(set) - 3
		if c := set[i]; c.method != "Set" || c.status != status || !errors.Is(c.err, err) {
			t.Errorf("the store got %+v, want what the cache has: %v, %v", c, status, err)
		}
	})
}

// A subscriber finds the observation behind an event in the store, and the calls for a
// pod are in the order of their times.
func TestStoreIsWrittenBeforeTheEventsAndInOrder(t *testing.T) {
	const pods = 10
	synctest.Test(t, func(t *testing.T) {
		l := &recorder{}
		r := kit.New(t, pipeline.Options{Store: l, Inspectors: 3})
		sub, err := r.Subscribe(pipeline.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		read := make(chan struct{})
		go func() {
			defer close(read)
			for ev := range sub.Events() {
				got++
				if calls := l.of(ev.PodUID); !slices.ContainsFunc(calls, func(c call) bool {
					return c.uid == ev.PodUID && !c.at.Before(ev.ObservedAt)
				}) {
					t.Errorf("%s of pod %s before the store had it: %v", ev.Type, ev.PodUID, calls)
				}
			}
		}()
		uids := kit.UIDs(pods)
		for _, uid := range uids {
			r.Runtime.Set(uid, "c=running")
			r.Runtime.SetPodFault(uid, plegtest.Delay(300*time.Millisecond))
		}
		r.Start(t)
		synctest.Wait()
		for _, state := range []string{"c=exited", "c=exited d=running", "d=exited", ""} {
			kit.Relist(1)
			for _, uid := range uids {
				if state == "" {
					r.Runtime.Remove(uid)
				} else {
					r.Runtime.Set(uid, state)
				}
			}
		}
		time.Sleep(10 * pipeline.DefaultRelistPeriod)
		_ = r.Stop()
		<-read
		if got < 5*pods {
			t.Errorf("%d events, want at least %d", got, 5*pods)
		}
		for _, uid := range uids {
			calls := slices.DeleteFunc(l.of(uid), func(c call) bool { return c.uid == "" })
			if !slices.IsSortedFunc(calls, func(a, b call) int { return a.at.Compare(b.at) }) {
				t.Errorf("calls for pod %s are not in the order of their times: %+v", uid, calls)
			}
			if last := calls[len(calls)-1]; last.method != "Delete" {
				t.Errorf("the last call for pod %s is %v, want Delete", uid, last)
			}
		}
	})
}
