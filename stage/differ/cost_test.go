package differ_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// discardCache does not allocate.
type discardCache struct{}

func (discardCache) Observe(time.Time, []*pleg.Pod) {}
func (discardCache) Touch(pleg.PodUID, time.Time)   {}

func (discardCache) KeepRemoved(*pleg.ContainerStatus) {}

// newPods returns new pods with two containers and a sandbox each.
func newPods() []*pleg.Pod {
	pods := make([]*pleg.Pod, 100)
	for i := range pods {
		uid := pleg.PodUID(fmt.Sprint("pod-", i))
		pods[i] = plegtest.Pod(uid, fmt.Sprintf("%s-1=running %s-2=running /%s-s=running", uid, uid, uid))
	}
	return pods
}

// A runtime lists unchanged pods as the same pointers or as new ones.
func TestUnchangedListingAllocatesNothing(t *testing.T) {
	first := newPods()
	for name, lists := range map[string][2][]*pleg.Pod{"same": {first, first}, "fresh": {first, newPods()}} {
		t.Run("pods="+name, func(t *testing.T) {
			d, err := differ.New(differ.Options{
				Cache: discardCache{}, Lister: &fakeLister{}, Pods: &fakeLister{}, RelistPeriod: period, MaxQuarantine: maxQuarantine,
				Logger: slog.New(slog.DiscardHandler),
			})
			kit.Must(t, err)
			d.Apply(stage.Listing{At: at(1), Pods: lists[0]})
			if got := d.SettleQueued(); got != 100+1 { // the mark is one
				t.Fatalf("settled %d changes, want 100 and a mark", got)
			}
			n := 1
			if got := testing.AllocsPerRun(100, func() {
				n++
				d.Apply(stage.Listing{At: at(n), Pods: lists[n%2]})
				d.SettleQueued()
			}); got != 0 {
				t.Errorf("allocations of an unchanged listing = %v, want 0", got)
			}
		})
	}
}
