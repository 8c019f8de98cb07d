package instrument

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// CallBuckets are the buckets of calls, lists and inspections, in seconds: few, because each is a
// series of every node.
var CallBuckets = []float64{.005, .05, .5, 5, 60}

// LagBuckets are the buckets of the time until an event has arrived elsewhere, in seconds.
var LagBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600}

// Set makes the metrics of one package and registers them together.
type Set struct {
	Registry
	all  []prometheus.Collector
	undo sync.Once
}

// NewSet returns an empty set.
func (r Registry) NewSet() *Set { return &Set{Registry: r} }

// Register registers the metrics of the set.
func (s *Set) Register() error { return s.Registry.Register(s.all...) }

// Unregister undoes Register. Further calls do nothing: they would take equal metrics away that another
// set has registered since.
func (s *Set) Unregister() {
	if s.Registerer == nil {
		return
	}
	s.undo.Do(func() {
		for _, c := range s.all {
			s.Registerer.Unregister(c)
		}
	})
}

// Add adds a collector.
func (s *Set) Add(c prometheus.Collector) { s.all = append(s.all, c) }

func add[C prometheus.Collector](s *Set, c C) C {
	s.Add(c)
	return c
}

// Counter makes a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// CounterVec makes a counter with a label.
func (s *Set) CounterVec(name, help, label string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
}

// Gauge makes a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// GaugeVec makes a gauge with a label.
func (s *Set) GaugeVec(name, help, label string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label}))
}

// GaugeFunc makes a gauge whose value is asked for.
func (s *Set) GaugeFunc(name, help string, value func() float64) {
	s.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Histogram makes a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

// HistogramVec makes a histogram with a label.
func (s *Set) HistogramVec(name, help, label string, buckets []float64) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label}))
}

// Bool is the value of a gauge that is 1 or 0.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
