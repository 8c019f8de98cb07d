package kubelet_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// If 110 pods change between two lists, this generator needs at most a tenth of the
// time of GenericPLEG, from the list to the last event and to the time of the cache.
// The latencies are those of a busy node: 48 ms for a list, 29 ms for an inspection.
func TestBurstTakesTenthOfGenericPLEG(t *testing.T) {
	stock, ours := burst(t, true), burst(t, false)
	t.Logf("110 changed pods: GenericPLEG %v, pipeline %v", stock, ours)
	if ours > stock/10 {
		t.Errorf("110 changed pods take %v, more than a tenth of GenericPLEG's %v", ours, stock)
	}
}

func burst(t *testing.T, stock bool) (took time.Duration) {
	const pods = 110
	synctest.Test(t, func(t *testing.T) {
		s := newGenerator(t, stock)
		defer s.pleg.Stop()
		for i := range pods {
			s.runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprintf("a%d=running b%d=running /s%d=running", i, i, i))
		}
		s.pleg.Start(quiet(t))
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		s.collect()
		s.runtime.slowLists(48 * time.Millisecond)
		for i := range pods {
			uid := types.UID(fmt.Sprint(i))
			s.runtime.slow(uid, 29*time.Millisecond)
			s.runtime.set(uid, fmt.Sprintf("a%d=exited b%d=exited /s%d=running", i, i, i))
		}
		before := s.cache.cacheTime()
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		last := began
		for events := 0; events < 2*pods || s.cache.cacheTime().Equal(before); last = time.Now() {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			events += s.collect()
			if time.Since(began) > time.Minute {
				t.Fatalf("%d of %d events after a minute", events, 2*pods)
			}
		}
		took = last.Sub(began)
	})
	return took
}
