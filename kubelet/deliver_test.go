package kubelet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

// If the kubelet's channel is full, nothing is discarded and nothing is delayed: the events wait
// in the log. If the kubelet reads nothing for longer than the log reaches, the missed events are
// counted and logged, and the state of every pod follows.
func TestFullChannel(t *testing.T) {
	const room = 10
	for _, tc := range []struct{ pods, containers, missed, lines int }{{30, 2, 0, 0}, {100, 100, 5000, 1}} {
		runFixtureWith(t, kubelet.Options{}, room, nil, func(f *fixture) {
			before := counter(t)
			for i := range tc.pods {
				words := ""
				for c := range tc.containers {
					words += fmt.Sprintf(" c%d-%d=running", i, c)
				}
				f.runtime.set(types.UID(fmt.Sprint(i)), words)
			}
			f.relist()
			if _, err := f.cache.status("29"); err != nil || f.cache.cacheTime().IsZero() {
				t.Errorf("the full channel delayed the cache: %v", err)
			}
			got := make(map[string]int)
			for range tc.pods * tc.containers / room * 2 {
				for _, e := range f.events() {
					got[e]++
				}
				f.settle()
			}
			missed := counter(t) - before
			if len(got) != tc.pods*tc.containers || missed < tc.missed || tc.missed == 0 && missed > 0 {
				t.Errorf("%d different events of %d, %d discarded, want at least %d", len(got), tc.pods*tc.containers, missed, tc.missed)
			}
			if lines := f.log.containing(`"Event channel was not read, discarding events"`); len(lines) != tc.lines {
				t.Errorf("logged %q, want %d lines", lines, tc.lines)
			} else if len(lines) > 0 && !strings.Contains(lines[0], fmt.Sprintf(`"events"=%d "recovery"="the present state of all pods"`, missed)) {
				t.Errorf("logged %q, want %d events and the recovery", lines, missed)
			}
			for n := range 3 * room {
				f.runtime.set(types.UID(fmt.Sprint("later-", n)), fmt.Sprintf("l%d=running", n))
			}
			f.relist()
			select {
			case e := <-f.pleg.Watch(): // nobody reads the others, and the generator ends all the same
				if !strings.HasPrefix(words(e), "later-") {
					t.Errorf("event %q, want one of the changes that came afterwards", words(e))
				}
			default:
				t.Error("no event of the changes that came afterwards")
			}
			f.settle() // until the channel is full again
		})
	}
}

func TestExitCodesAreLogged(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running /s1=running") }, func(f *fixture) {
		f.runtime.set("1", "c1=exited /s1=exited")
		f.relist()
		f.runtime.set("1", "/s1=exited") // it is removed, which is not its end
		f.relist()
		got := f.log.containing(`"Generic (PLEG): container finished"`)
		if len(got) != 1 || !strings.Contains(got[0], `"podID"="1" "containerID"="c1" "exitCode"=3`) {
			t.Errorf("logged %q, want one line with the pod, c1 and its exit code", got)
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

// As in the kubelet, a relist lasts until all of its changes are in the cache.
func TestRelistDurationIncludesInspections(t *testing.T) {
	before := histogram(t, metrics.PLEGRelistInterval.ObserverMetric)
	runFixture(t, nil, func(f *fixture) {
		if count, _ := histogram(t, metrics.PLEGRelistInterval.ObserverMetric).since(before); count > 0 {
			t.Errorf("measured %d intervals before the first list", count)
		}
		durations := histogram(t, metrics.PLEGRelistDuration.ObserverMetric)
		intervals := histogram(t, metrics.PLEGRelistInterval.ObserverMetric)
		f.runtime.slowLists(100 * time.Millisecond)
		f.runtime.slow("1", 300*time.Millisecond)
		f.runtime.set("1", "c1=running /s1=running /s0=running") // one running pod
		f.runtime.set("2", "d1=exited /t1=exited")
		f.wait(500 * time.Millisecond)
		began := time.Now()
		f.wait(500 * time.Millisecond)
		if count, sum := histogram(t, metrics.PLEGRelistDuration.ObserverMetric).since(durations); count != 1 || sum != 0.4 {
			t.Errorf("measured %d relists of %v s, want 1 of 0.4 s", count, sum)
		}
		if count, sum := histogram(t, metrics.PLEGRelistInterval.ObserverMetric).since(intervals); count != 1 || sum != 1 {
			t.Errorf("measured %d intervals of %v s, want 1 of 1 s", count, sum)
		}
		for name, gauge := range map[string]struct {
			metric kubemetrics.GaugeMetric
			want   float64
		}{
			"last seen":          {metrics.PLEGLastSeen, float64(began.Unix())},
			"running pods":       {metrics.RunningPodCount, 1},
			"running containers": {metrics.RunningContainerCount.WithLabelValues("running"), 1},
			"exited containers":  {metrics.RunningContainerCount.WithLabelValues("exited"), 1},
		} {
			if got, err := testutil.GetGaugeMetricValue(gauge.metric); err != nil || got != gauge.want {
				t.Errorf("%s: %v, %v; want %v", name, got, err, gauge.want)
			}
		}
	})
}

// As in the kubelet, failed relists are measured too, and the interval is the time since the last relist
// that succeeded. Relists of one pod have a metric of their own.
func TestFailedAndSingleRelistsAreMeasured(t *testing.T) {
	runFixture(t, func(r *fakeRuntime) { r.set("1", "c1=running") }, func(f *fixture) {
		durations := histogram(t, metrics.PLEGRelistDuration.ObserverMetric)
		intervals := histogram(t, metrics.PLEGRelistInterval.ObserverMetric)
		single := histogram(t, metrics.PLEGPodRelistDuration.ObserverMetric)
		f.runtime.slowLists(100 * time.Millisecond)
		f.runtime.fail(errList)
		first := float64(time.Now().Unix())
		f.wait(1800 * time.Millisecond)
		if seen, err := testutil.GetGaugeMetricValue(metrics.PLEGLastSeen); err != nil || seen != first {
			t.Errorf("last seen while lists fail: %v, %v; want %v, when the last one began that succeeded", seen, err, first)
		}
		f.runtime.fail(nil)
		if count, sum := histogram(t, metrics.PLEGRelistDuration.ObserverMetric).since(durations); count != 2 || sum != 0.2 {
			t.Errorf("measured %d failed relists of %v s, want 2 of 0.2 s", count, sum)
		}
		if count, sum := histogram(t, metrics.PLEGRelistInterval.ObserverMetric).since(intervals); count != 2 || sum != 3.1 {
			t.Errorf("measured %d intervals of %v s, want 2 of 3.1 s: 1 s and 2.1 s", count, sum)
		}
		f.pleg.RequestRelist(logr.Discard(), "1")
		f.wait(200 * time.Millisecond)
		if count, sum := histogram(t, metrics.PLEGPodRelistDuration.ObserverMetric).since(single); count != 1 || sum != 0.1 {
			t.Errorf("measured %d relists of one pod of %v s, want 1 of 0.1 s", count, sum)
		}
		f.pleg.RequestRelist(logr.Discard(), "gone")
		f.wait(200 * time.Millisecond)
		f.runtime.fail(errList)
		f.pleg.RequestRelist(logr.Discard(), "1")
		f.wait(150 * time.Millisecond)
		if count, sum := histogram(t, metrics.PLEGPodRelistDuration.ObserverMetric).since(single); count != 3 || sum != 0.3 {
			t.Errorf("measured %d relists of one pod of %v s, want those of a pod that is gone and of one that fails too", count, sum)
		}
	})
}

// measured is the content of a histogram.
type measured struct {
	count uint64
	sum   float64
}

func histogram(t *testing.T, h kubemetrics.ObserverMetric) measured {
	t.Helper()
	count, err := testutil.GetHistogramMetricCount(h)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := testutil.GetHistogramMetricValue(h)
	if err != nil {
		t.Fatal(err)
	}
	return measured{count, sum}
}

func (m measured) since(before measured) (count uint64, sum float64) {
	return m.count - before.count, float64(int((m.sum-before.sum)*1000+0.5)) / 1000
}
