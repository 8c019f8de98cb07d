package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// widths are the numbers of pods that are inspected at once: as a kubelet does, with the
// small step of docs/upstream.md, and as the pipeline in a kubelet does.
var widths = []int{1, 4, 16}

// Load is how the runtime answers the calls of relists. Its JSON form is one of the
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
	*examination

	mu     sync.Mutex // guards calls
	calls  map[LoadCall]*samples
	sweeps map[int][]float64
}

// samples are the calls of one method: durations in seconds, and the number of failures.
type samples struct {
	took   []float64
	failed int
}

// MeasureCalls makes the calls of relists for some time and measures each. In each round it
// lists all pods, then inspects all of them once for each width. Between two rounds it waits
// for as long as the last one took, at least a relist period. It returns an error if the
// runtime does not answer.
func MeasureCalls(ctx context.Context, o Options, lasts time.Duration) (*Load, error) {
	client, err := cri.New(o.Endpoint, cri.Options{ConnectTimeout: o.CallTimeout, MaxRecvBytes: maxAnswer, DialOptions: o.DialOptions})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	e := &examination{Options: o, report: new(Report), client: client, runtime: runtimeapi.NewRuntimeServiceClient(client.Conn())}
	if f := e.version(ctx); f != nil {
		return nil, errors.New(f.Summary)
	}
	m := &measurement{examination: e, calls: make(map[LoadCall]*samples), sweeps: make(map[int][]float64)}
	load := &Load{Runtime: e.report.Runtime, CPUs: runtime.NumCPU()}
	began := time.Now()
	for {
		round := time.Now()
		if load.Pods, load.StatusCalls, err = m.round(ctx); err != nil {
			return nil, err
		}
		wait := max(o.Period, time.Since(round))
		if time.Since(began)+wait > lasts {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	e.readPressure() // of the last ten seconds
	load.Node, load.TookSeconds = e.report.Node, time.Since(began).Seconds()
	m.summarize(load)
	return load, nil
}

// statusCall is a call of an inspection.
type statusCall struct {
	method string
	make   func(context.Context) error
}

// round makes both lists, one after the other as a kubelet does, and inspects all pods with
// each width. It returns the number of pods and of status calls for all of them.
func (m *measurement) round(ctx context.Context) (pods, statusCalls int, err error) {
	inspections := make(map[string][]statusCall) // by sandbox
	add := func(sandbox, method string, call func(context.Context) error) {
		inspections[sandbox] = append(inspections[sandbox], statusCall{method, call})
		statusCalls++
	}
	err = m.measure(ctx, 1, statusCall{"ListPodSandbox", func(ctx context.Context) error {
		answer, err := m.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		for _, s := range answer.GetItems() {
			add(s.GetId(), "PodSandboxStatus", func(ctx context.Context) error {
				_, err := m.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
				return err
			})
		}
		return err
	}})
	err = errors.Join(err, m.measure(ctx, 1, statusCall{"ListContainers", func(ctx context.Context) error {
		answer, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		for _, c := range answer.GetContainers() {
			add(c.GetPodSandboxId(), "ContainerStatus", func(ctx context.Context) error {
				_, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
				return err
			})
		}
		return err
	}}))
	if err == nil && len(inspections) == 0 {
		err = errors.New("the runtime has no pods: there is nothing to measure")
	}
	if err == nil {
		for _, width := range widths {
			m.sweep(ctx, slices.Collect(maps.Values(inspections)), width)
		}
	}
	return len(inspections), statusCalls, cmp.Or(err, context.Cause(ctx))
}

// sweep inspects all pods, width at once. The calls for one pod are made one after the
// other, as in a kubelet.
func (m *measurement) sweep(ctx context.Context, pods [][]statusCall, width int) {
	began := time.Now()
	var inspections errgroup.Group
	inspections.SetLimit(width)
	for _, calls := range pods {
		inspections.Go(func() error {
			for _, call := range calls {
				_ = m.measure(ctx, width, call) // counts the error
			}
			return nil
		})
	}
	_ = inspections.Wait() // never fails
	m.sweeps[width] = append(m.sweeps[width], time.Since(began).Seconds())
}

// measure makes one call. What was removed since the list is not counted.
func (m *measurement) measure(ctx context.Context, width int, call statusCall) error {
	callCtx, cancel := context.WithTimeout(ctx, m.CallTimeout)
	defer cancel()
	began := time.Now()
	err := call.make(callCtx)
	took := time.Since(began)
	if ctx.Err() != nil || status.Code(err) == codes.NotFound {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := LoadCall{Method: call.method, AtOnce: width}
	if m.calls[key] == nil {
		m.calls[key] = new(samples)
	}
	s := m.calls[key]
	s.took = append(s.took, took.Seconds())
	if err != nil {
		s.failed++
		err = fmt.Errorf("%s: %w", call.method, err)
	}
	return err
}

func (m *measurement) summarize(load *Load) {
	for key, s := range m.calls {
		slices.Sort(s.took)
		key.Count, key.Failed = len(s.took), s.failed
		key.P50Seconds, key.P99Seconds = percentile(s.took, 50), percentile(s.took, 99)
		load.Calls = append(load.Calls, key)
	}
	order := []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"}
	slices.SortFunc(load.Calls, func(a, b LoadCall) int {
		return cmp.Or(slices.Index(order, a.Method)-slices.Index(order, b.Method), a.AtOnce-b.AtOnce)
	})
	for _, width := range widths {
		took := m.sweeps[width]
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
	fmt.Fprintf(&b, "\nIf all %d pods changed at once, their %d status calls would take:\n\n| pods inspected at once | time | of that of a kubelet |\n| ---: | ---: | ---: |\n", l.Pods, l.StatusCalls)
	for _, s := range l.Sweeps {
		fmt.Fprintf(&b, "| %d | %s | %.2f |\n", s.AtOnce, seconds(s.MedianSeconds), s.MedianSeconds/l.Sweeps[0].MedianSeconds)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
