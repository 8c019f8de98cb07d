package soak

import "time"

// Fit and ParseMetrics are functions under test.
var (
	Fit          = fit
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
