package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func TestParseCandidate(t *testing.T) {
	for name, inspectors := range map[string]int{"serial": 0, "kubelet": 0, "pipeline-1": 1, "pipeline-32": 32, "fixed-8": 8, "events-16": 16, "drop-in": 0, "drop-in-events": 0, "calls-only": 0} {
		c, err := parseCandidate(name)
		if err != nil || c.inspectors() != inspectors {
			t.Errorf("parseCandidate(%q) = %q with %d inspectors, %v; want %d", name, c, c.inspectors(), err, inspectors)
		}
	}
	for _, name := range []string{"", "pipeline", "pipeline-", "pipeline-0", "pipeline--1", "pipeline-x", "Serial", "fixed", "fixed-0", "events", "events-x", "other-3", "drop-in-16"} {
		if c, err := parseCandidate(name); err == nil || !strings.Contains(err.Error(), "unknown candidate") {
			t.Errorf("parseCandidate(%q) = %q, %v; want an error that says it is unknown", name, c, err)
		}
	}
}

func TestVerifyWantsExactlyTheEvents(t *testing.T) {
	want := map[string]int{"ContainerDied": 2}
	for _, c := range []struct {
		name string
		seen map[string]control.Seen
		ok   bool
	}{
		{"exactly", map[string]control.Seen{"ContainerDied": {Count: 2}}, true},
		{"too few", map[string]control.Seen{"ContainerDied": {Count: 1}}, false},
		{"too many", map[string]control.Seen{"ContainerDied": {Count: 3}}, false},
		{"none", nil, false},
		{"others too", map[string]control.Seen{"ContainerDied": {Count: 2}, "PodSync": {Count: 1}}, false},
	} {
		err := verify(control.Report{Seen: c.seen}, want)
		if ok := err == nil; ok != c.ok {
			t.Errorf("%s: verify = %v, want ok %t", c.name, err, c.ok)
		}
	}
}

func TestLimitIsListPlusStatusTimeDividedByCalls(t *testing.T) {
	at := control.Answer{PeakInFlight: 20, RPCs: map[string]control.RPC{
		"ListContainers":   {Calls: 2, TimeMS: 60},
		"ListPodSandbox":   {Calls: 2, TimeMS: 36},
		"ContainerStatus":  {Calls: 100, TimeMS: 1200},
		"PodSandboxStatus": {Calls: 100, TimeMS: 400},
	}}
	for c, want := range map[Candidate]float64{serial: 1630, kubelet: 1630, dropIn: 130, callsOnly: 130, "pipeline-16": 130, "pipeline-32": 110} {
		if got := limit(at, c); got != want {
			t.Errorf("limit of %s = %v, want %v", c, got, want)
		}
	}
}

func TestDelaysMatchEventsByContainer(t *testing.T) {
	changes := []control.Arrival{{ID: "a", UnixNS: 1e6}, {ID: "b", UnixNS: 2e6}, {ID: "unseen", UnixNS: 3e6}}
	events := []control.Arrival{
		{Type: "ContainerStarted", ID: "b", UnixNS: 12e6},
		{Type: "ContainerDied", ID: "a", UnixNS: 99e6},
		{Type: "ContainerStarted", ID: "a", UnixNS: 6e6},
	}
	got := delays(changes, events)
	if len(got) != 2 || got[0] != 5 || got[1] != 10 {
		t.Errorf("delays = %v, want [5 10]", got)
	}
}

func TestPercentileAndMedian(t *testing.T) {
	sorted := make([]float64, 100)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	for p, want := range map[int]float64{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile %d = %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing = %v, want 0", got)
	}
	for want, values := range map[float64][]float64{2: {9, 1, 2}, 2.5: {4, 1, 2, 3}} {
		r := &Row{Metrics: map[string]*Figure{}}
		for _, v := range values {
			r.add(Metrics{"last": v})
		}
		if f := r.Metrics["last"]; f.Median != want || f.Min != 1 || f.Max != values[0] {
			t.Errorf("%v has %+v, want the median %v", values, f, want)
		}
	}
}

func TestQuietNodeFailsCandidateWithOtherWork(t *testing.T) {
	w := quiet{pods: 110, containers: 2, span: 10 * time.Second}
	usage := control.Usage{WallSeconds: 10, CPUSeconds: 0.5, Allocs: 600}
	for name, tt := range map[string]struct {
		c      Candidate
		lists  int64
		status int64
		seen   map[string]control.Seen
		ok     bool
	}{
		"relists":                {"pipeline-16", 10, 0, nil, true},
		"has stopped relisting":  {kubelet, 4, 0, nil, false},
		"has events":             {"events-16", 0, 0, nil, true},
		"relists less and less":  {"events-16", 3, 0, nil, true},
		"relists despite events": {"events-16", 5, 0, nil, false},
		"inspects":               {"events-16", 0, 1, nil, false},
		"delivers an event":      {serial, 10, 0, map[string]control.Seen{"PodSync": {Count: 1}}, false},
	} {
		at := control.Answer{CPUSeconds: 0.25, RPCs: map[string]control.RPC{
			"ListContainers": {Calls: tt.lists}, "ContainerStatus": {Calls: tt.status},
		}}
		m, err := w.metrics(tt.c, control.Report{Usage: usage, Seen: tt.seen}, at)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "wrong work") {
			t.Errorf("%s: error %v, want ok %t", name, err, tt.ok)
		}
		if tt.ok && (m["client"] != 3000 || m["server"] != 1500 || m["allocs"] != 3600) {
			t.Errorf("%s: %v, want 3000 ms, 1500 ms and 3600 allocations a minute", name, m)
		}
	}
}

// writeTree writes empty Go benchmarks into the packages of a new tree.
func writeTree(t *testing.T, packages ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range packages {
		dir := filepath.Join(root, p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "package p_test\n\nfunc BenchmarkX(b *testing.B) {}\n"
		if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCompareReportsFailedBenchmarks(t *testing.T) {
	out := "BenchmarkA-2 \t 5\t 400 ns/op\n--- FAIL: BenchmarkB\n    b_test.go:1: boom\nFAIL\tx\t0.1s\nFAIL\ty [build failed]\n"
	want := []string{"new: --- FAIL: BenchmarkB", "new: FAIL\ty [build failed]"}
	if got := failed("new", []byte(out)); !slices.Equal(got, want) {
		t.Errorf("failed = %q, want %q", got, want)
	}
}

func TestCompareLeavesOutMovedPackages(t *testing.T) {
	before := writeTree(t, "bench", "cri", "internal/recording", "bench/kubelet", "testdata/x")
	after := writeTree(t, "bench", "cri", "cmd/pleg-pipeline/internal/recording", "bench/kubelet", "testdata/x")
	for _, root := range []string{before, after} {
		if err := os.WriteFile(filepath.Join(root, "bench", "kubelet", "go.mod"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ only, want []string }{
		{nil, []string{"./bench", "./cri"}},
		{[]string{"./cri"}, []string{"./cri"}},
	} {
		if got, err := commonBenchmarks(before, after, c.only); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("commonBenchmarks of %v = %v, %v; want %v", c.only, got, err, c.want)
		}
	}
	if _, err := commonBenchmarks(before, after, []string{"./internal/recording"}); err == nil || !strings.Contains(err.Error(), "both revisions") {
		t.Errorf("commonBenchmarks of a moved package = %v, want an error", err)
	}
}
