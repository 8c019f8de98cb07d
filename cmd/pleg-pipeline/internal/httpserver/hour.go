package httpserver

import (
	"context"
	"net/http"
	"slices"
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
	before uint64 // events before the last point
}

// points is the answer of /hour: a point for each ten seconds, the oldest first, at most an hour.
// The last point is not complete.
type points struct {
	// PeriodSeconds is the time between two points, Until the time of the answer.
	PeriodSeconds float64   `json:"periodSeconds"`
	Until         time.Time `json:"until"`
	// ListSeconds is the longest time for which a due list was missing: the list took that long, is
	// running, or lists failed.
	ListSeconds []float64 `json:"listSeconds"`
	// Hung is the greatest number of pods whose inspections hang, Events the number of events.
	Hung   []int    `json:"hung"`
	Events []uint64 `json:"events"`
}

// NewHour returns an Hour without points. gatherer returns the metrics of the pipeline.
func NewHour(pipe *pipeline.Pipeline, gatherer prometheus.Gatherer) *Hour {
	return &Hour{pipe: pipe, gatherer: gatherer, points: points{PeriodSeconds: (looksPerPoint * lookPeriod).Seconds()}}
}

// Run collects points until ctx ends.
func (h *Hour) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		status, _ := h.pipe.Status(ctx)
		h.look(ctx, status, n%looksPerPoint == 0)
	}
}

// look adds the figures of the pipeline to the last point, or to a new point.
func (h *Hour) look(ctx context.Context, s pleg.Status, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.points
	if first {
		h.before = h.countEvents(ctx)
		p.ListSeconds, p.Hung, p.Events = newest(append(p.ListSeconds, 0)), newest(append(p.Hung, 0)), newest(append(p.Events, 0))
	}
	last := len(p.Hung) - 1
	_, hung := view.CountHung(s)
	p.ListSeconds[last], p.Hung[last] = max(p.ListSeconds[last], listAge(s).Seconds()), max(p.Hung[last], hung)
}

// countEvents sets the events of the last point and returns the number of all events so far.
func (h *Hour) countEvents(ctx context.Context) uint64 {
	all := view.ReadFigures(ctx, h.pipe, h.gatherer).Dispatcher.Events
	if last := len(h.points.Events) - 1; last >= 0 {
		h.points.Events[last] = all - h.before
	}
	return all
}

func newest[T any](values []T) []T { return values[max(0, len(values)-hourPoints):] }

// listAge returns how long the last list took, or for how long a list has been due.
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

// ServeHTTP answers with the points.
func (h *Hour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := newQuery(r).finish(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.countEvents(r.Context())
	answer := h.points
	answer.ListSeconds, answer.Hung, answer.Events = slices.Clone(answer.ListSeconds), slices.Clone(answer.Hung), slices.Clone(answer.Events)
	h.mu.Unlock()
	answer.Until = time.Now()
	writeJSON(w, answer)
}
