package kubelet_test

import (
	"testing"
	"time"

	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// As in the kubelet, a relist lasts until all of its changes are in the cache.
func TestRelistDurationIncludesInspections(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		durations := histogram(t, metrics.PLEGRelistDuration.ObserverMetric)
		intervals := histogram(t, metrics.PLEGRelistInterval.ObserverMetric)
		f.runtime.slowLists(100 * time.Millisecond)
		f.runtime.slow("1", 300*time.Millisecond)
		f.runtime.set("1", "c1=running /s1=running")
		f.runtime.set("2", "d1=exited")
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
