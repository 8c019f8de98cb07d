package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/benchtest"
	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each candidate sees the existing pods, and then those of a burst.
func TestCandidatesSeeTheSame(t *testing.T) {
	const pods, containers = 6, 2
	c := config{inspectors: 4, period: 20 * time.Millisecond, timeout: time.Minute}
	for name, candidate := range map[string]func(*cri.Client) probe.Candidate{"serial": c.serial, "pipeline": c.pipeline} {
		t.Run(name, func(t *testing.T) {
			n, client := benchtest.NewNode(t)
			if err := n.Populate(pods, containers); err != nil {
				t.Fatal(err)
			}
			ask, end := benchtest.Serve(t, candidate(client))
			const started = pods * (containers + 1)
			if r := benchtest.Start(ask, map[string]int{"ContainerStarted": started}, time.Minute); !r.Done || r.Seen["ContainerStarted"].Count != started {
				t.Fatalf("start: %+v", r)
			}
			ask(control.Command{Do: control.ClientExpect, Want: map[string]int{"ContainerDied": pods * containers}})
			n.Burst(pods, simruntime.Exit)
			r := ask(control.Command{Do: control.ClientWait, TimeoutMS: 60_000})
			if died := r.Seen["ContainerDied"]; !r.Done || died.Count != pods*containers || died.LastMS <= 0 {
				t.Errorf("burst: %+v", r)
			}
			end(nil)
		})
	}
}

func TestBadArgumentsAreExplained(t *testing.T) {
	for want, c := range map[string]config{
		`unknown candidate "parallel"`: {candidate: "parallel"},
		"is not a unix socket":         {candidate: "serial", socket: "localhost:80"},
		"no runtime at -socket":        {candidate: "serial", socket: "/no-such-socket"},
	} {
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", c, err, want)
		}
	}
}
