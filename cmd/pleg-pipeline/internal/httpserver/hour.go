package httpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks at the pipeline, and looksPerPoint the number of
	// looks whose worst is a point of the hour.
	lookPeriod    = time.Second
	looksPerPoint = 10
	hourPoints    = 360
)

// Hour keeps figures of the last hour, for the page. [Hour.Run] collects them.
type Hour struct {
	pipe     *pipeline.Pipeline
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	points points
}

// points is the answer of /hour: for each ten seconds, the oldest first, at most an hour.
type points struct {
	// PeriodSeconds is the time between two points, and Until that of the last one.
	PeriodSeconds float64   `json:"periodSeconds"`
	Until         time.Time `json:"until"`
	// ListSeconds has the longest time without a new list while one was due: how long a list
	// took, has been running, or for how long lists have failed.
	ListSeconds []float64 `json:"listSeconds"`
	// Hung has the greatest number of pods whose inspections hang, Events the number of events.
	Hung   []int    `json:"hung"`
	Events []uint64 `json:"events"`
}

// NewHour returns an Hour without points. The metrics in gatherer are those of the pipeline.
func NewHour(pipe *pipeline.Pipeline, gatherer prometheus.Gatherer) *Hour {
	return &Hour{pipe: pipe, gatherer: gatherer, points: points{PeriodSeconds: (looksPerPoint * lookPeriod).Seconds()}}
}

// Run collects points until ctx ends.
func (h *Hour) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	events := view.ReadFigures(h.pipe, h.gatherer).Dispatcher.Events
	for {
		list, hung := 0.0, 0
		for range looksPerPoint {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			s := h.pipe.Status()
			list, hung = max(list, listAge(s).Seconds()), max(hung, hungPods(s))
		}
		now := view.ReadFigures(h.pipe, h.gatherer).Dispatcher.Events
		h.add(list, hung, now-events)
		events = now
	}
}

func (h *Hour) add(list float64, hung int, events uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.points.Until = time.Now()
	h.points.ListSeconds = newest(append(h.points.ListSeconds, list))
	h.points.Hung = newest(append(h.points.Hung, hung))
	h.points.Events = newest(append(h.points.Events, events))
}

// newest returns a copy of the newest hourPoints values: who has the last answer keeps it.
func newest[T any](values []T) []T {
	return append([]T(nil), values[max(0, len(values)-hourPoints):]...)
}

// listAge returns how long the last list took, or how long there has been none that was due.
func listAge(s pleg.Status) time.Duration {
	age := s.Relist.Took
	if !s.Relist.Started.IsZero() {
		age = max(age, s.At.Sub(s.Relist.Started))
	}
	if !s.Relist.Failing.IsZero() {
		age = max(age, s.At.Sub(s.Relist.Failing))
	}
	return age
}

// hungPods returns the number of pods whose inspection hangs, or whose last one did.
func hungPods(s pleg.Status) int {
	pods := make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		if i.Hung {
			pods[i.UID] = true
		}
	}
	for _, q := range s.Quarantined {
		pods[q.UID] = true
	}
	return len(pods)
}

// ServeHTTP answers with the points.
func (h *Hour) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	points := h.points
	h.mu.Unlock()
	writeJSON(w, points)
}
