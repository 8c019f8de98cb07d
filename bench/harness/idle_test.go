package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

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
		"relists despite events": {"events-16", 1, 0, nil, false},
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
