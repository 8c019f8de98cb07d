package differ

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// newPods returns new pods with two containers and a sandbox each.
func newPods() []*pleg.Pod {
	pods := make([]*pleg.Pod, 100)
	for i := range pods {
		uid := pleg.PodUID(fmt.Sprint("pod-", i))
		pods[i] = plegtest.Pod(uid, fmt.Sprintf("%s-1=running %s-2=running /%s-s=running", uid, uid, uid))
	}
	return pods
}

// A runtime lists unchanged pods as the same pointers or as new pointers.
func TestUnchangedListingAllocatesNothing(t *testing.T) {
	first := newPods()
	for name, lists := range map[string][2][]*pleg.Pod{"same": {first, first}, "fresh": {first, newPods()}} {
		t.Run("pods="+name, func(t *testing.T) {
			m := newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8})
			var ticks stage.Ticks
			now := time.Unix(1, 0)
			var in listing
			list := func(pods []*pleg.Pod) {
				in.Listing = stage.Listing{Asked: stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: now}, Pods: pods}
				m.step(&in, now)
			}
			list(lists[0])
			for {
				c, _, _ := m.next(now)
				if c == nil {
					break
				}
				m.step(accepted{c}, now)
				m.step(settle{stage.Settled{UID: c.UID, How: stage.Committed}}, now)
			}
			n := 0
			if got := testing.AllocsPerRun(100, func() {
				n++
				list(lists[n%2])
			}); got != 0 {
				t.Errorf("allocations of an unchanged listing = %v, want 0", got)
			}
		})
	}
}

// A node may contain thousands of ended pods: running pods do not wait for them.
func TestPodsThatRunComeFirst(t *testing.T) {
	m := newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8})
	now := time.Unix(1, 0)
	m.step(&listing{stage.Listing{Asked: stage.Asked{Began: 1, Answered: 2, At: now}, Pods: []*pleg.Pod{
		plegtest.Pod("ended", "a=exited /s=exited"), plegtest.Pod("runs", "b=exited /t=running"),
	}}}, now)
	if c, _, _ := m.next(now); c == nil || c.UID != "runs" {
		t.Errorf("%+v is inspected first, want the pod that runs", c)
	}
}

// Pods that wait cost little at each list. The inspected change is that of the newest list.
func TestPodsThatWait(t *testing.T) {
	m := newMachine(Options{RelistPeriod: time.Second, MaxQuarantine: time.Minute, Inspectors: 8})
	var ticks stage.Ticks
	at, pods := time.Unix(1, 0), newPods()
	var in listing
	list := func() {
		at = at.Add(time.Second)
		in.Listing = stage.Listing{Asked: stage.Asked{Began: ticks.Next(), Answered: ticks.Next(), At: at}, Pods: pods}
		m.step(&in, at)
	}
	list()
	if got := testing.AllocsPerRun(100, list); got > float64(len(pods)) {
		t.Errorf("allocations of a list while %d pods wait = %v, want less", len(pods), got)
	}
	pods = newPods()
	list()
	for range pods {
		c, _, _ := m.next(at)
		if !c.At.Equal(at) || c.Last != c.Pod || c.Pod != m.records[c.UID].current {
			t.Fatalf("the change is of %v, want the newest answer, of %v", c.At, at)
		}
		for _, ev := range c.Events {
			if !ev.ObservedAt.Equal(at) {
				t.Fatalf("an event was observed at %v, want %v", ev.ObservedAt, at)
			}
		}
		m.step(accepted{c}, at)
	}
	if c, _, _ := m.next(at); c != nil {
		t.Errorf("%v waits although all were accepted", c.UID)
	}
}
