package instrument_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// several is a collector of several metrics.
type several []prometheus.Collector

// Describe implements [prometheus.Collector].
func (s several) Describe(to chan<- *prometheus.Desc) {
	for _, c := range s {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (s several) Collect(to chan<- prometheus.Metric) {
	for _, c := range s {
		c.Collect(to)
	}
}

func gauge(name, help string) prometheus.Collector {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// A program can repair its options and try again: the first try leaves no metric behind.
func TestRegistersAllOrNone(t *testing.T) {
	reg := prometheus.NewRegistry()
	taken := several{gauge("taken", "Taken."), gauge("other", "Other.")}
	kit.Must(t, reg.Register(taken))
	for range 2 {
		const want = "register metric taken: duplicate metrics collector registration attempted (does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)"
		if err := (instrument.Registry{Registerer: reg}).Register(gauge("ours", "Ours."), taken); err == nil || err.Error() != want {
			t.Fatalf("a name is taken twice: %v, want %s", err, want)
		}
		if err := (instrument.Registry{Registerer: reg}).Register(gauge("ours", "Ours."), gauge("taken", "Theirs.")); err == nil || !strings.HasPrefix(err.Error(), "register metrics: ") {
			t.Fatalf("a name has two meanings: %v", err)
		}
	}
	reg.Unregister(taken)
	kit.Must(t, instrument.Registry{Registerer: reg}.Register(gauge("ours", "Ours."), gauge("taken", "Taken.")))
}

// A second Unregister, such as by a client that is closed twice, takes nothing away from the next set.
func TestUnregistersOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	register := func() *instrument.Set {
		s := instrument.Registry{Registerer: reg}.NewSet()
		s.Counter("ours_total", "Ours.")
		kit.Must(t, s.Register())
		return s
	}
	first := register()
	first.Unregister()
	register()
	first.Unregister()
	if families, err := reg.Gather(); err != nil || len(families) != 1 {
		t.Errorf("%d metrics of the second set, %v, want 1", len(families), err)
	}
}

// Each metric has its name, its help, its label and its buckets. Without a registerer it counts too.
func TestMetricsOfASet(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for _, r := range []instrument.Registry{{}, {Registerer: reg}} {
		s := r.NewSet()
		s.Counter("a_total", "A.").Inc()
		s.CounterVec("b_total", "B.", "bs").WithLabelValues("x").Add(2)
		s.Gauge("c", "C.").Set(3)
		s.GaugeVec("d", "D.", "ds").WithLabelValues("x").Set(4)
		s.GaugeFunc("e", "E.", func() float64 { return 5 })
		s.Histogram("f_seconds", "F.", []float64{1, 2}).Observe(2)
		s.HistogramVec("g_seconds", "G.", "gs", []float64{3, 4}).WithLabelValues("x").Observe(4)
		kit.Must(t, s.Register())
		defer s.Unregister()
	}
	kit.Must(t, testutil.GatherAndCompare(reg, strings.NewReader(`# HELP a_total A.
# TYPE a_total counter
a_total 1
# HELP b_total B.
# TYPE b_total counter
b_total{bs="x"} 2
# HELP c C.
# TYPE c gauge
c 3
# HELP d D.
# TYPE d gauge
d{ds="x"} 4
# HELP e E.
# TYPE e gauge
e 5
# HELP f_seconds F.
# TYPE f_seconds histogram
f_seconds_bucket{le="1"} 0
f_seconds_bucket{le="2"} 1
f_seconds_bucket{le="+Inf"} 1
f_seconds_sum 2
f_seconds_count 1
# HELP g_seconds G.
# TYPE g_seconds histogram
g_seconds_bucket{gs="x",le="3"} 0
g_seconds_bucket{gs="x",le="4"} 1
g_seconds_bucket{gs="x",le="+Inf"} 1
g_seconds_sum{gs="x"} 4
g_seconds_count{gs="x"} 1
`)))
}

// Dashboards and recorded queries contain these values.
func TestNamesAndValues(t *testing.T) {
	got := fmt.Sprint(instrument.Registry{}.Name("ours", "kubelet"), " ", instrument.Registry{KubeletNames: true}.Name("ours", "kubelet"), " ",
		instrument.Bool(true), instrument.Bool(false), instrument.CallBuckets, instrument.LagBuckets)
	if want := "ours kubelet 1 0 [0.005 0.05 0.5 5 60] [0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 60 600 3600]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
