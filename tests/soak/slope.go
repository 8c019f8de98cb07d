package soak

import (
	"math"
	"time"
)

// Slope is a line fitted by least squares.
type Slope struct {
	// PerHour is the slope, and StdErr its standard error, in units per hour.
	PerHour float64 `json:"perHour"`
	StdErr  float64 `json:"stdErr"`
}

// Exceeds reports whether the slope is above a bound by more than two standard
// errors.
func (s Slope) Exceeds(bound float64) bool { return s.PerHour-2*s.StdErr > bound }

// fit returns the line through the points; the zero Slope for less than three.
func fit(at []time.Duration, values []float64) Slope {
	n := float64(len(at))
	if len(at) < 3 {
		return Slope{}
	}
	var meanX, meanY float64
	for i := range at {
		meanX += at[i].Hours() / n
		meanY += values[i] / n
	}
	var sxx, sxy float64
	for i := range at {
		dx := at[i].Hours() - meanX
		sxx += dx * dx
		sxy += dx * (values[i] - meanY)
	}
	slope := sxy / sxx
	var residual float64
	for i := range at {
		e := values[i] - meanY - slope*(at[i].Hours()-meanX)
		residual += e * e
	}
	return Slope{PerHour: slope, StdErr: math.Sqrt(residual / (n - 2) / sxx)}
}
