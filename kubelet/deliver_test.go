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

// What does not fit into the kubelet's channel is discarded and counted, delays
// nobody, and is made good by one PodSync for each pod.
func TestFullChannel(t *testing.T) {
	const pods, room = 30, 10
	stageWith(t, room, nil, func(s *scene) {
		before := counter(t)
		for i := range pods {
			s.node.set(types.UID(fmt.Sprint(i)), fmt.Sprintf("a%d=running b%d=running", i, i))
		}
		s.relist()
		if got := counter(t) - before; got != 2*pods-room {
			t.Errorf("%v events counted as discarded, want %d", got, 2*pods-room)
		}
		if _, err := s.cache.Get("29"); err != nil || s.cache.cacheTime().IsZero() {
			t.Errorf("the full channel has held up the cache: %v", err)
		}
		if got := s.log.with("Event channel is full"); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
		told := make(map[string]int)
		syncs := 0
		for range pods {
			for _, e := range s.events() {
				uid, what, _ := strings.Cut(e, " ")
				told[uid]++
				if what == "PodSync" {
					syncs++
				}
			}
			s.settle()
		}
		if len(told) != pods {
			t.Errorf("%d pods were told of, want %d", len(told), pods)
		}
		if syncs < pods-room || syncs > pods {
			t.Errorf("%d PodSyncs for %d pods", syncs, pods)
		}
	})
}

func TestExitCodesAreLogged(t *testing.T) {
	stage(t, func(n *node) { n.set("1", "c1=running /s1=running") }, func(s *scene) {
		s.node.set("1", "c1=exited /s1=exited")
		s.relist()
		got := s.log.with(`Generic (PLEG): container finished`)
		if len(got) != 1 || !strings.Contains(got[0], `"containerID"="c1" "exitCode"=3`) {
			t.Errorf("logged %q, want one line with c1 and its exit code", got)
		}
	})
}

// With the gate off a request for a relist does nothing.
func TestRelistGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PLEGOnDemandRelist, false)
	stage(t, func(n *node) { n.set("1", "c1=running") }, func(s *scene) {
		s.pleg.RequestRelist("1")
		s.settle()
		if n := s.node.relists(); n != 0 {
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
