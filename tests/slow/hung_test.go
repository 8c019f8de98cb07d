package slow_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// nodeLatency is the time of an inspection on a node.
const nodeLatency = 17 * time.Millisecond

// others changes 110 pods of a node, of which some hang, spread evenly, and returns when
// the last of the others was told.
func others(t *testing.T, hung, inspectors int) (took time.Duration) {
	const pods = 110
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{Inspectors: inspectors})
		p.Runtime.SetInspectFault(plegtest.Delay(nodeLatency))
		kit.Fill(p.Runtime, pods, "c=running")
		events := p.Events(t, 10*pods)
		p.StartBetweenLists(t)
		kit.Relist(10)
		for len(events) > 0 {
			<-events
		}
		for n := range hung {
			p.Runtime.SetPodFault(kit.UIDs(pods)[n*pods/hung], plegtest.Hang)
		}
		began := time.Now()
		kit.Fill(p.Runtime, pods, "c=exited")
		for range pods - hung {
			<-events
		}
		took = time.Since(began)
	})
	return took
}

func TestHungPodsDelayNoOther(t *testing.T) {
	for _, inspectors := range []int{8, 16} {
		without := others(t, 0, inspectors)
		for hung, most := range map[int]time.Duration{1: without * 13 / 10, 5: without * 13 / 10, 40: 4 * time.Second} {
			t.Run(fmt.Sprintf("%d of 110, %d inspectors", hung, inspectors), func(t *testing.T) {
				took := others(t, hung, inspectors)
				t.Logf("%v, without %v", took, without)
				if took > most {
					t.Errorf("the others took %v, want at most %v; without hung pods %v", took, most, without)
				}
			})
		}
	}
}

// Before anything has answered, slow and hung cannot be told apart, and a slow runtime must
// not pay for that: the more hang, the later the first healthy pod.
func TestFirstWaveHangs(t *testing.T) {
	for hung, most := range map[int]time.Duration{
		1: time.Second, 7: time.Second, 8: time.Second, 15: 10 * time.Second, 25: time.Minute, 40: pipeline.DefaultInspectTimeout + 15*time.Second,
	} {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := kit.New(t, pipeline.Options{})
				kit.Fill(p.Runtime, hung+1, "c=running")
				for _, uid := range kit.UIDs(hung) {
					p.Runtime.SetPodFault(uid, plegtest.Hang)
				}
				events := p.Events(t, 0)
				began := time.Now()
				p.Start(t)
				if ev := <-events; ev.PodUID != pleg.PodUID(fmt.Sprintf("p%d", hung)) {
					t.Fatalf("event %v", ev)
				}
				t.Logf("%v", time.Since(began))
				if took := time.Since(began); took > most {
					t.Errorf("took %v, want at most %v", took, most)
				}
			})
		})
	}
}
