package pipeline_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// contractLife is what the node shows of a pod, list by list; the pod of
// UID p0 is one step ahead of p1 and so on.
var contractLife = []string{
	"c1=created /s=running", "c1=running /s=running", "c1=exited c2=running /s=running",
	"c2=running /s=running", "c2=exited /s=running", "c2=exited /s=exited", "",
}

const contractPods = 20

// live lets every pod take n steps of its life, one for each list.
func (b *contractBed) live(n int) {
	for range n {
		b.step()
		b.relist(1)
	}
}

// step lets every pod take a step, which the next list shows.
func (b *contractBed) step() {
	for i, uid := range podUIDs(contractPods) {
		b.node.Set(uid, contractLife[(b.steps+i)%len(contractLife)])
	}
	b.steps++
}

// delays returns how long inspections take: always the same for a pod, and
// together less than the time between two lists.
func delays() func(pleg.PodUID) time.Duration {
	rng := rand.New(rand.NewPCG(1, 2))
	times := make(map[pleg.PodUID]time.Duration)
	for _, uid := range podUIDs(contractPods) {
		times[uid] = time.Duration(rng.IntN(200)) * time.Millisecond
	}
	return func(uid pleg.PodUID) time.Duration { return times[uid] }
}

// words tells of each pod what its events say of which container.
func words(events []pleg.Event) map[pleg.PodUID]string {
	pods := make(map[pleg.PodUID]string)
	for _, ev := range events {
		pods[ev.PodUID] = strings.TrimSpace(pods[ev.PodUID] + " " + plegtest.Words(ev))
	}
	return pods
}

// Events of one pod come in the order in which its states were seen, although
// inspections of different pods overtake each other.
func TestContractOrdered(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		b.node.Delay = delays()
		v := b.subscribe(pipeline.SubscribeOptions{})
		b.live(2 * len(contractLife))
		b.relist(1)
		const life = "Started(/s) Started(c1) Died(c1) Started(c2) Removed(c1) Died(c2) Died(/s) Removed(c2) Removed(/s)"
		got := words(v.events())
		for _, uid := range podUIDs(contractPods) {
			if !strings.Contains(got[uid], life) {
				b.Errorf("pod %s: %s\n\twant in it %s", uid, got[uid], life)
			}
		}
	})
}

// Sequence numbers only grow, for whoever joins whenever: no event comes twice.
func TestContractUnique(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		all := b.subscribe(pipeline.SubscribeOptions{})
		var late []*view
		for range 3 * len(contractLife) {
			b.live(1)
			late = append(late, b.subscribe(pipeline.SubscribeOptions{Replay: true, Bookmarks: true}))
		}
		b.live(3)
		if n := len(all.events()); n < 100 {
			b.Fatalf("only %d events", n)
		}
		for i, v := range append(late, all) {
			var last uint64
			for _, ev := range v.events() {
				mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
				if ev.Seq < last || ev.Seq == last && !mark {
					b.Errorf("subscriber %d: %+v after number %d", i, ev, last)
				}
				last = ev.Seq
			}
		}
	})
}
