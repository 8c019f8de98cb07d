package kubelet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The kubelet learns that pods wait and no inspection succeeds, although lists do.
func TestHealthyIsThatOfThePipeline(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		for i := range 5 {
			uid := types.UID(fmt.Sprint(i))
			f.runtime.set(uid, fmt.Sprintf("c%d=running", i))
			f.runtime.slow(uid, time.Hour)
		}
		f.wait(2 * time.Minute)
		if ok, err := f.pleg.Healthy(); !ok {
			t.Errorf("not healthy before the threshold: %v", err)
		}
		f.wait(2 * time.Minute)
		if ok, err := f.pleg.Healthy(); ok || err == nil || !strings.Contains(err.Error(), "test/") {
			t.Errorf("Healthy() = %v, %v, want false and the names of pods", ok, err)
		}
	})
}
