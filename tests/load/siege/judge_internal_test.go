package main

import (
	"io"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

func TestJudgeReaders(t *testing.T) {
	good := load.Numbers{Served: true, Events: 3}
	for name, test := range map[string]struct {
		bad      load.Numbers
		problems int
	}{
		"all is well":  {load.Numbers{Served: true, Told: 2, Events: 1}, 0},
		"not served":   {load.Numbers{}, 1},
		"lost":         {load.Numbers{Served: true, Events: 1, Lost: 1}, 1},
		"comes twice":  {load.Numbers{Served: true, Events: 1, Repeated: 1}, 1},
		"both of them": {load.Numbers{Served: true, Lost: 1, Repeated: 1}, 2},
	} {
		r := load.NewRun("siege", io.Discard)
		judgeReaders(r, []*reader{{Numbers: good}, {Numbers: test.bad}})
		if got := r.Problems(); len(got) != test.problems {
			t.Errorf("%s: problems %q, want %d", name, got, test.problems)
		}
	}
}

func TestJudgeDaemon(t *testing.T) {
	fast := make(load.Times, 200)
	for name, test := range map[string]struct {
		probes   load.Times
		peak     int64
		problems int
	}{
		"all is well":       {append(load.Times{time.Second}, fast...), maxRSS, 0},
		"no probe":          {nil, 0, 1},
		"a probe failed":    {append(load.Times{probeTimeout}, fast...), 0, 1},
		"probes were slow":  {append(load.Times{time.Second, time.Second, time.Second}, fast...), 0, 1},
		"too much memory":   {fast, maxRSS + 1, 1},
		"slow, and a large": {load.Times{time.Second}, maxRSS + 1, 2},
	} {
		r := load.NewRun("siege", io.Discard)
		judgeDaemon(r, test.probes, test.peak)
		if got := r.Problems(); len(got) != test.problems {
			t.Errorf("%s: problems %q, want %d", name, got, test.problems)
		}
	}
}
