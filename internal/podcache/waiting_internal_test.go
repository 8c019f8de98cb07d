package podcache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Waiting and Len agree with Pending and List, without looking at every pod.
func TestWaitingIsPendingInShort(t *testing.T) {
	errBroken := errors.New("broken")
	random := rand.New(rand.NewPCG(7, 0))
	c := New()
	now := time.Unix(1_700_000_000, 0)
	for step := range 5000 {
		uid := pleg.PodUID(fmt.Sprint(random.IntN(12)))
		now = now.Add(time.Second)
		at := now.Add(-time.Duration(random.IntN(3)) * time.Second)
		switch random.IntN(6) {
		case 0:
			var pending []*pleg.Pod
			for n := range 12 {
				if random.IntN(3) == 0 {
					pending = append(pending, &pleg.Pod{UID: pleg.PodUID(fmt.Sprint(n))})
				}
			}
			c.Observe(now, pending)
		case 1:
			c.Delete(uid, at)
		case 2:
			c.Touch(uid, at)
		case 3:
			c.Set(uid, nil, errBroken, at)
		default:
			c.Set(uid, &pleg.PodStatus{UID: uid}, nil, at)
		}
		pending, waiting := c.Pending(), c.Waiting()
		failed := slices.DeleteFunc(slices.Clone(pending), func(p cache.Pending) bool { return p.Err == nil })
		if waiting.Pods != len(pending) || c.Len() != len(c.List()) || len(c.order) > 12 || !reflect.DeepEqual(sliceOf(waiting.First), sliceOf(pending[:min(MaxFirst, len(pending))])) || !reflect.DeepEqual(sliceOf(waiting.Failed), sliceOf(failed)) {
			t.Fatalf("step %d: %+v, %d pods, want the short form of %+v", step, waiting, c.Len(), pending)
		}
	}
}

func sliceOf(p []cache.Pending) []cache.Pending { return append([]cache.Pending{}, p...) }

// BenchmarkWaiting is the cost of reading the status while every pod waits for its first inspection.
func BenchmarkWaiting(b *testing.B) {
	for _, pods := range []int{10_000, 40_000, 100_000} {
		b.Run(fmt.Sprint("pods=", pods), func(b *testing.B) {
			c := New()
			waiting := make([]*pleg.Pod, pods)
			for n := range waiting {
				waiting[n] = &pleg.Pod{UID: pleg.PodUID(fmt.Sprint(n))}
			}
			c.Observe(time.Now(), waiting)
			b.ReportAllocs()
			for b.Loop() {
				c.Waiting()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}
