package main

import (
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

func TestParseCandidate(t *testing.T) {
	for name, inspectors := range map[string]int{"serial": 0, "kubelet": 0, "pipeline-1": 1, "pipeline-32": 32, "fixed-8": 8, "events-16": 16} {
		c, err := parseCandidate(name)
		if err != nil || c.inspectors() != inspectors {
			t.Errorf("parseCandidate(%q) = %q with %d inspectors, %v; want %d", name, c, c.inspectors(), err, inspectors)
		}
	}
	for _, name := range []string{"", "pipeline", "pipeline-", "pipeline-0", "pipeline--1", "pipeline-x", "Serial", "fixed", "fixed-0", "events", "events-x", "other-3"} {
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
	for c, want := range map[Candidate]float64{serial: 1630, kubelet: 1630, "pipeline-16": 130, "pipeline-32": 110} {
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
	if odd, even := median([]float64{9, 1, 2}), median([]float64{4, 1, 2, 3}); odd != 2 || even != 2.5 {
		t.Errorf("medians are %v and %v, want 2 and 2.5", odd, even)
	}
}
