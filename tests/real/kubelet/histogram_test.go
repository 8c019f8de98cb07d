//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// histogram counts the calls that took at most a number of seconds, for each such limit in rising
// order.
type histogram []struct{ limit, calls float64 }

var bucketLine = regexp.MustCompile(`(?m)^kubelet_runtime_operations_duration_seconds_bucket\{operation_type="(\w+)",le="([^"]+)"\} (\S+)$`)

// calls returns the kubelet's own measurements of its calls to the runtime.
func (tr *trial) calls(ctx context.Context, operation string) histogram {
	text, err := tr.k.get(ctx, "/metrics")
	kit.Must(tr.t, err)
	return tr.parse(text, operation)
}

func (tr *trial) parse(text, operation string) histogram {
	var h histogram
	for _, match := range bucketLine.FindAllStringSubmatch(text, -1) {
		if match[1] != operation {
			continue
		}
		limit, limitErr := strconv.ParseFloat(match[2], 64)
		calls, err := strconv.ParseFloat(match[3], 64)
		kit.Must(tr.t, errors.Join(limitErr, err))
		h = append(h, struct{ limit, calls float64 }{limit, calls})
	}
	return h
}

func (h histogram) count() float64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].calls
}

// since returns the calls after those of before.
func (h histogram) since(before histogram) histogram {
	h = slices.Clone(h)
	for i := range before {
		h[i].calls -= before[i].calls
	}
	return h
}

// quantile is Prometheus's histogram_quantile.
func (h histogram) quantile(q float64) float64 {
	rank := q * h.count()
	low, fewer := 0.0, 0.0
	for _, b := range h {
		if math.IsInf(b.limit, 1) {
			break
		}
		if b.calls >= rank && b.calls > fewer {
			return low + (b.limit-low)*(rank-fewer)/(b.calls-fewer)
		}
		low, fewer = b.limit, b.calls
	}
	return low
}

func TestQuantile(t *testing.T) {
	h := histogram{{0.005, 50}, {0.0125, 90}, {0.03, 100}, {math.Inf(1), 100}}
	if got, want := h.quantile(0.95), 0.0125+(0.03-0.0125)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the quantile is %v, want %v", got, want)
	}
	if got := h.since(h).count(); got != 0 {
		t.Errorf("%v calls after all, want 0", got)
	}
}
