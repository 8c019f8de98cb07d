package contract_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// podLife are the states of a pod, list by list. Each pod is one step ahead of the
// pod before it.
var podLife = []string{
	"c1=created /s=running", "c1=running /s=running", "c1=exited c2=running /s=running",
	"c2=running /s=running", "c2=exited /s=running", "c2=exited /s=exited", "",
}

const livingPods = 20

// live makes every pod take n steps of its life, one at each list.
func (f *fixture) live(n int) {
	for range n {
		f.step()
		kit.Relist(1)
	}
}

// step makes every pod take a step, which the next list shows.
func (f *fixture) step() {
	for i, uid := range kit.UIDs(livingPods) {
		f.Runtime.Set(uid, podLife[(f.steps+i)%len(podLife)])
	}
	f.steps++
}

// setDelays makes each inspection of a pod take the same time, less than the time
// between two lists.
func (f *fixture) setDelays() {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, uid := range kit.UIDs(livingPods) {
		f.Runtime.SetPodFault(uid, plegtest.Delay(time.Duration(rng.IntN(200))*time.Millisecond))
	}
}

// Events of one pod come in the order in which its states were seen, although
// inspections of different pods overtake each other.
func TestContractOrdered(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		f.setDelays()
		v := f.subscribe(pipeline.SubscribeOptions{})
		f.live(2 * len(podLife))
		kit.Relist(1)
		const life = "Started(/s) Started(c1) Died(c1) Started(c2) Removed(c1) Died(c2) Died(/s) Removed(c2) Removed(/s)"
		got := kit.WordsByPod(v.Events())
		for _, uid := range kit.UIDs(livingPods) {
			if !strings.Contains(got[uid], life) {
				f.Errorf("pod %s: %s\n\twant in it %s", uid, got[uid], life)
			}
		}
	})
}

// For every subscriber, whenever it joins, sequence numbers grow and no event comes
// twice.
func TestContractUnique(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		all := f.subscribe(pipeline.SubscribeOptions{})
		var late []*kit.Subscriber
		for range 3 * len(podLife) {
			f.live(1)
			late = append(late, f.subscribe(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
		}
		f.live(3)
		if n := len(all.Events()); n < 100 {
			f.Fatalf("only %d events", n)
		}
		for i, v := range append(late, all) {
			var last uint64
			for _, ev := range v.Events() {
				mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
				if ev.Seq < last || ev.Seq == last && !mark {
					f.Errorf("subscriber %d: %+v after number %d", i, ev, last)
				}
				last = ev.Seq
			}
		}
	})
}
