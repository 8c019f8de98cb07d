package pipeline_test

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
)

// call is one of those that a store got.
type call struct {
	method string
	uid    pleg.PodUID
	at     time.Time
	status *pleg.PodStatus
	err    error
	// pending are those of an Observe.
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

// recorder is a store that notes its calls.
type recorder struct {
	mu    sync.Mutex
	calls []call
}

func (l *recorder) note(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

func (l *recorder) Set(uid pipeline.PodUID, status *pipeline.PodStatus, err error, at time.Time) {
	l.note(call{method: "Set", uid: uid, status: status, err: err, at: at})
}

func (l *recorder) Delete(uid pipeline.PodUID, at time.Time) {
	l.note(call{method: "Delete", uid: uid, at: at})
}

func (l *recorder) Touch(uid pipeline.PodUID, at time.Time) {
	l.note(call{method: "Touch", uid: uid, at: at})
}

func (l *recorder) Observe(at time.Time, pending []pipeline.PodUID) {
	l.note(call{method: "Observe", at: at, pending: slices.Sorted(slices.Values(pending))})
}

// of returns the calls for one pod so far, and with them those for all.
func (l *recorder) of(uid pleg.PodUID) []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.calls), func(c call) bool { return c.uid != uid && c.uid != "" })
}

func TestStoreIsWrittenBesideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &recorder{}
		r := newRig(t, pipeline.Options{Store: l})
		r.node.set("a", "c=running")
		r.run(t)
		r.node.on("a", failing(errInspect))
		r.node.set("a", "c=exited")
		r.relist()
		r.node.on("a", takes(1500*time.Millisecond)) // over a list that shows it unchanged
		r.relist()
		r.relist()
		r.relist()
		status, err := r.Cache().Get("a")
		set := l.of("a")
		r.node.on("a", nil)
		r.node.remove("a")
		r.relist()
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

// Whoever gets an event finds its observation in the store, and the calls for a
// pod are in the order of their times.
func TestStoreIsWrittenBeforeTheEventsAndInOrder(t *testing.T) {
	const pods = 10
	synctest.Test(t, func(t *testing.T) {
		l := &recorder{}
		r := newRig(t, pipeline.Options{Store: l, Inspectors: 3})
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
		uids := podUIDs(pods)
		for _, uid := range uids {
			r.node.set(uid, "c=running")
			r.node.on(uid, takes(300*time.Millisecond))
		}
		r.run(t)
		for _, state := range []string{"c=exited", "c=exited d=running", "d=exited", ""} {
			r.relist()
			for _, uid := range uids {
				if state == "" {
					r.node.remove(uid)
				} else {
					r.node.set(uid, state)
				}
			}
		}
		time.Sleep(10 * relistPeriod)
		_ = r.stop()
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
