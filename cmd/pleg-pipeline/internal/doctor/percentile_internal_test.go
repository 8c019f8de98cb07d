package doctor

import "testing"

// TestPercentile: the nearest rank is the least measured value that the given part of all values
// does not exceed.
func TestPercentile(t *testing.T) {
	for _, test := range []struct {
		values  int
		percent float64
		want    float64
	}{
		{1, 50, 1},
		{1, 99, 1},
		{2, 50, 1},
		{2, 99, 2},
		{3, 50, 2},
		{4, 50, 2},
		{5, 50, 3},
		{99, 99, 99},
		{100, 99, 99},
		{101, 99, 100},
		{200, 99, 198},
		{201, 99, 199},
		{10, 100, 10},
	} {
		var sorted []float64
		for n := range test.values {
			sorted = append(sorted, float64(n+1))
		}
		if got := percentile(sorted, test.percent); got != test.want {
			t.Errorf("percentile %v of 1 to %d is %v, want %v", test.percent, test.values, got, test.want)
		}
	}
}
