package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// BenchmarkCache does what the stages and the readers do to the cache.
func BenchmarkCache(b *testing.B) {
	for _, pods := range []int{110, 5000} {
		uids := make([]pleg.PodUID, pods)
		c := cache.New(time.Minute)
		at := time.Now()
		for i, pod := range makePods(pods, 2) {
			uids[i] = pod.UID
			c.Set(pod.UID, &pleg.PodStatus{UID: pod.UID}, nil, at)
		}
		b.Run(fmt.Sprintf("op=set/pods=%d", pods), func(b *testing.B) {
			status := &pleg.PodStatus{}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				c.Set(uids[n%pods], status, nil, at)
			}
		})
		b.Run(fmt.Sprintf("op=get/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if _, err := c.Get(uids[n%pods]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("op=observe/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Observe(time.Now(), nil)
			}
		})
		b.Run(fmt.Sprintf("op=wait/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				// Fresh enough already: what a pod worker does most of the time.
				if _, err := c.GetNewerThan(b.Context(), uids[n%pods], at.Add(-time.Second)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
