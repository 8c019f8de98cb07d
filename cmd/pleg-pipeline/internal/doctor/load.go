package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// widths are the numbers of pods that are inspected at once: as a kubelet does, with the
// small step of docs/dev/upstream.md, and as the pipeline in a kubelet does.
var widths = []int{1, 4, 16}

// Load describes how fast the runtime answers the calls of relists. Its JSON form is one of the
// program's outputs.
type Load struct {
	Runtime     string     `json:"runtime"`
	CPUs        int        `json:"cpus"`
	Pods        int        `json:"pods"`
	StatusCalls int        `json:"statusCalls"` // for all pods
	TookSeconds float64    `json:"tookSeconds"`
	Node        Node       `json:"node"`
	Calls       []LoadCall `json:"calls"`
	Sweeps      []Sweep    `json:"sweeps"`
}

// LoadCall summarizes the calls of one method with a number of pods inspected at once.
type LoadCall struct {
	Method     string  `json:"method"`
	AtOnce     int     `json:"atOnce"`
	Count      int     `json:"count"`
	Failed     int     `json:"failed"`
	P50Seconds float64 `json:"p50Seconds"`
	P99Seconds float64 `json:"p99Seconds"`
}

// Sweep is the inspection of all pods, a number of them at once.
type Sweep struct {
	AtOnce        int     `json:"atOnce"`
	Count         int     `json:"count"`
	MedianSeconds float64 `json:"medianSeconds"`
}

// measurement is the state of one call of [MeasureCalls].
type measurement struct {
	*calls

	pods, statuses int
	took           map[LoadCall][]float64 // in seconds
	failed         map[LoadCall]int
	sweeps         map[int][]float64
}

// MeasureCalls makes the calls of relists for some time and measures each. A call that takes longer
// than timeout has failed. In each round it lists all pods, then inspects all of them once for each
// width. Between two rounds it waits for as long as the last round took, at least a relist period.
// If ctx ends before, it returns the measurements so far. It returns an error if the runtime does
// not answer.
func MeasureCalls(ctx context.Context, o Options, timeout, lasts time.Duration) (*Load, error) {
	c, err := connect(ctx, o, timeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.client.Close() }()
	m := &measurement{calls: c, took: make(map[LoadCall][]float64), failed: make(map[LoadCall]int), sweeps: make(map[int][]float64)}
	began := time.Now()
	for len(m.took) == 0 || ctx.Err() == nil {
		round := time.Now()
		if err := m.round(ctx); err != nil && (len(m.took) == 0 || ctx.Err() == nil) {
			return nil, err
		}
		wait := max(pipeline.DefaultRelistPeriod, time.Since(round))
		if time.Since(began)+wait > lasts {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	load := &Load{Runtime: m.name, CPUs: runtime.NumCPU(), Pods: m.pods, StatusCalls: m.statuses, TookSeconds: time.Since(began).Seconds()}
	load.Node.readPressure(o.Pressure) // of the last ten seconds
	m.summarize(load)
	return load, nil
}

// round makes both lists, and inspects all pods with each width. The calls for one pod are made
// one after the other, as in a kubelet.
func (m *measurement) round(ctx context.Context) error {
	pods, err := m.client.ListPods(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return errors.New("the runtime has no pods: there is nothing to measure")
	}
	m.pods, m.statuses = len(pods), 0
	for _, p := range pods {
		m.statuses += len(p.Sandboxes) + len(p.Containers)
	}
	for _, width := range widths {
		began := time.Now()
		var sweep errgroup.Group
		sweep.SetLimit(width)
		for _, p := range pods {
			sweep.Go(func() error {
				m.inspect(ctx, ids(p.Sandboxes), ids(p.Containers))
				return nil
			})
		}
		_ = sweep.Wait() // never fails
		if ctx.Err() == nil {
			m.sweeps[width] = append(m.sweeps[width], time.Since(began).Seconds())
		}
		m.countCalls(width) // the lists are among those of one pod at once
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func ids(of []*pleg.Container) []string {
	all := make([]string, len(of))
	for n, c := range of {
		all[n] = string(c.ID)
	}
	return all
}

// countCalls counts the calls since the last time.
func (m *measurement) countCalls(width int) {
	for _, c := range m.made {
		key := LoadCall{Method: c.method, AtOnce: width}
		m.took[key] = append(m.took[key], c.took.Seconds())
		if c.err != nil {
			m.failed[key]++
		}
	}
	m.made = nil
}

// methods are the calls of a relist, in the order of the table.
var methods = []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"}

func (m *measurement) summarize(load *Load) {
	for key, took := range m.took {
		failed := m.failed[key]
		slices.Sort(took)
		key.Count, key.Failed, key.P50Seconds, key.P99Seconds = len(took), failed, percentile(took, 50), percentile(took, 99)
		load.Calls = append(load.Calls, key)
	}
	slices.SortFunc(load.Calls, func(a, b LoadCall) int {
		return cmp.Or(slices.Index(methods, a.Method)-slices.Index(methods, b.Method), a.AtOnce-b.AtOnce)
	})
	for _, width := range widths {
		took := m.sweeps[width]
		if len(took) == 0 { // the measurement was interrupted
			break
		}
		slices.Sort(took)
		load.Sweeps = append(load.Sweeps, Sweep{width, len(took), percentile(took, 50)})
	}
}

// percentile of sorted values by the nearest rank.
func percentile(sorted []float64, p float64) float64 {
	return sorted[int(math.Ceil(float64(len(sorted))*p/100))-1]
}

// Print writes the result as Markdown, for an issue. It returns the error of w.
func (l *Load) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "CRI calls of %s: %d pods, %d CPUs, measured for %s.", view.Printable(l.Runtime), l.Pods, l.CPUs, seconds(l.TookSeconds))
	if n := l.Node; n.IOPressure != nil && n.CPUPressure != nil {
		fmt.Fprintf(&b, " At the end, processes waited for disk %.0f %%, for CPU %.0f %% of 10 s.", *n.IOPressure, *n.CPUPressure)
	}
	b.WriteString("\n\n| call | pods inspected at once | calls | p50 | p99 | failed |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range l.Calls {
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %d |\n", c.Method, c.AtOnce, c.Count, seconds(c.P50Seconds), seconds(c.P99Seconds), c.Failed)
	}
	if len(l.Sweeps) > 0 {
		l.printSweeps(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *Load) printSweeps(b *strings.Builder) {
	fmt.Fprintf(b, "\nIf all %d pods changed at once, their %d status calls would take:\n\n| pods inspected at once | time | share of a kubelet's time |\n| ---: | ---: | ---: |\n", l.Pods, l.StatusCalls)
	for _, s := range l.Sweeps {
		fmt.Fprintf(b, "| %d | %s | %.2f |\n", s.AtOnce, seconds(s.MedianSeconds), s.MedianSeconds/l.Sweeps[0].MedianSeconds)
	}
}
