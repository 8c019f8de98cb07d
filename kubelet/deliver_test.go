package kubelet_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// If the kubelet's channel is full, events are discarded and counted, and nothing is
// delayed. Once there is room, each pod with discarded events gets one PodSync.
func TestFullChannelDiscardsEvents(t *testing.T) {
	const pods, room = 30, 10
	runFixtureWith(t, room, nil, func(f *fixture) {
		before := counter(t)
		for i := range pods {
			f.runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprintf("a%d=running b%d=running", i, i))
		}
		f.relist()
		if got := counter(t) - before; got != 2*pods-room {
			t.Errorf("%d discarded events counted, want %d", got, 2*pods-room)
		}
		if _, err := f.cache.Get("29"); err != nil || f.cache.cacheTime().IsZero() {
			t.Errorf("the full channel delayed the cache: %v", err)
		}
		if got := f.log.containing("Event channel is full"); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
		reported := make(map[string]bool)
		syncs := 0
		for range pods {
			for _, e := range f.events() {
				uid, what, _ := strings.Cut(e, " ")
				reported[uid] = true
				if what == "PodSync" {
					syncs++
				}
			}
			f.settle()
		}
		if len(reported) != pods {
			t.Errorf("events of %d pods, want %d", len(reported), pods)
		}
		if syncs < pods-room || syncs > pods {
			t.Errorf("%d PodSyncs for %d pods", syncs, pods)
		}
	})
}

func TestExitCodesAreLogged(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running /s1=running") }, func(f *fixture) {
		f.runtime.set("1", "c1=exited /s1=exited")
		f.relist()
		got := f.log.containing(`Generic (PLEG): container finished`)
		if len(got) != 1 || !strings.Contains(got[0], `"containerID"="c1" "exitCode"=3`) {
			t.Errorf("logged %q, want one line with c1 and its exit code", got)
		}
	})
}

// With the gate off RequestRelist does nothing.
func TestRequestRelistNeedsGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PLEGOnDemandRelist, false)
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		f.pleg.RequestRelist("1")
		f.settle()
		if n := f.runtime.relists(); n != 0 {
			t.Errorf("%d relists with the gate off", n)
		}
	})
}

func counter(t *testing.T) int {
	t.Helper()
	v, err := testutil.GetCounterMetricValue(metrics.PLEGDiscardEvents)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}
