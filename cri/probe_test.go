package cri_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// unresponsiveAfter is the longest time until the stream of an unresponsive runtime
// ends.
const unresponsiveAfter = cri.DefaultEventProbePeriod + 2*cri.DefaultEventProbeTimeout

var unresponsive = simruntime.Fault{RPC: "Version", Hang: true}

func TestStreamOfUnresponsiveRuntimeEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault simruntime.Fault
		every time.Duration // an event
		ends  bool
	}{
		"answers nothing":               {unresponsive, 0, true},
		"does not answer one call":      {simruntime.Fault{RPC: "Version", Hang: true, Times: 1}, 0, false},
		"answers late":                  {simruntime.Fault{RPC: "Version", Latency: simruntime.Latency{P50: 4 * time.Second}}, 0, false},
		"answers with an error":         {simruntime.Fault{RPC: "Version", Code: 13}, 0, false},
		"answers nothing, sends events": {unresponsive, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, client := simulated(t, cri.Options{})
				w := watchEvents(t, client)
				<-w.opened
				if _, err := rt.Inject(tt.fault); err != nil {
					t.Fatal(err)
				}
				for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(time.Second) {
					select {
					case err := <-w.ended:
						if !tt.ends || !errors.Is(err, pleg.ErrUnavailable) || time.Since(start) > unresponsiveAfter+time.Second {
							t.Errorf("ended after %v with %v", time.Since(start), err)
						}
						return
					default:
					}
					if tt.every > 0 && time.Since(start)%tt.every == 0 {
						if _, err := rt.Populate(simruntime.Population{Pods: 1, Containers: 1}); err != nil {
							t.Fatal(err)
						}
						for len(w.hints) > 0 {
							<-w.hints
						}
					}
				}
				if tt.ends {
					t.Error("the stream did not end")
				}
			})
		})
	}
}

// If the runtime does not answer, the stream is not opened.
func TestUnresponsiveRuntimeOpensNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{EventProbePeriod: time.Minute, EventProbeTimeout: 3 * time.Second})
		if _, err := rt.Inject(unresponsive); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := client.WatchEvents(t.Context(), func() { t.Error("opened") }, func(pleg.Hint) {})
		if !errors.Is(err, pleg.ErrUnavailable) || !strings.Contains(err.Error(), "2 times 3s") || time.Since(start) != 6*time.Second {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
	})
}

// With the default options, an unresponsive runtime becomes unhealthy as soon as
// without events, plus the time of the probes, and healthy again when it responds.
func TestHealthOfUnresponsiveRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		registry := prometheus.NewPedanticRegistry()
		p, _ := runPipeline(t, pipeline.Options{Runtime: client, Events: pipeline.EventsAuto, Registerer: registry})
		up := func(want string) {
			t.Helper()
			text := "# HELP pleg_event_stream_up 1 while the stream of container events is up, 0 otherwise.\n" +
				"# TYPE pleg_event_stream_up gauge\npleg_event_stream_up " + want + "\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "pleg_event_stream_up"); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		up("1")
		if _, err := rt.Inject(simruntime.Fault{Hang: true}); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); ; time.Sleep(time.Second) {
			ok, why := p.Healthy()
			after := time.Since(start)
			if want := pipeline.DefaultRelistThreshold + unresponsiveAfter; !ok || after > want {
				if ok || after < pipeline.DefaultRelistThreshold {
					t.Errorf("healthy %t (%v) after %v, want no after %v to %v", ok, why, after, pipeline.DefaultRelistThreshold, want)
				}
				break
			}
			if after == unresponsiveAfter+time.Second {
				up("0")
			}
		}
		up("0")
		rt.ClearAll()
		time.Sleep(unresponsiveAfter)
		if ok, why := p.Healthy(); !ok {
			t.Errorf("not healthy when the runtime responds again: %v", why)
		}
		up("1")
	})
}
