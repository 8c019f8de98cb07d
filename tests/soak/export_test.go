package soak

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Fit, CompareCache and ParseMetrics are tested from outside.
var (
	Fit          = fit
	CompareCache = compareCache
	ParseMetrics = parseMetrics
)

// Figures are the figures of samples of a heap, a second apart.
func Figures(heap ...float64) []Figure {
	var samples []Sample
	for i, bytes := range heap {
		samples = append(samples, Sample{At: time.Duration(i) * time.Second, HeapBytes: bytes})
	}
	return figures(samples)
}

// Mirror is a mirror that notes problems.
type Mirror struct {
	mirror
	Problems []string
}

// NewMirror returns a mirror that looks pods up in status.
func NewMirror(whole bool, look func(pleg.PodUID) (*pleg.PodStatus, error)) *Mirror {
	m := &Mirror{mirror: mirror{wants: everything, whole: whole, look: look}}
	m.problem = func(format string, _ ...any) { m.Problems = append(m.Problems, format) }
	m.reset()
	return m
}

// See, Compare and Audit are what a soak does.
func (m *Mirror) See(events ...pleg.Event) {
	for _, ev := range events {
		m.see(ev)
	}
}

// Compare returns the differences.
func (m *Mirror) Compare(t Truth) []string { return m.compare(t) }

// Audit is what happens in a rest.
func (m *Mirror) Audit(t Truth) { m.audit(t) }
