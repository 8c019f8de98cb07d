package cri_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// With the default options, events of changes during an outage arrive at most 350 ms
// after the runtime's return: 120 ms to connect, 200 ms to the next list, and no time
// for the calls themselves. If the runtime returns before the next list is due, that
// list shows the changes.
func TestEventsSoonAfterRuntimeReturns(t *testing.T) {
	t.Parallel()
	for _, events := range []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto} {
		for _, phase := range []time.Duration{50 * time.Millisecond, 420 * time.Millisecond, 950 * time.Millisecond} {
			for _, outage := range []time.Duration{400 * time.Millisecond, 1730 * time.Millisecond, 20 * time.Second} {
				t.Run(fmt.Sprintf("events=%s/%v after a list/away for %v", events, phase, outage), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						within := max(350*time.Millisecond, pipeline.DefaultRelistPeriod-phase-outage)
						if took := returnOf(t, events, phase, outage); took > within {
							t.Errorf("current %v after the return, want %v at most", took, within)
						}
					})
				})
			}
		}
	}
}

// returnOf returns the time from a runtime's return to the first event. The outage
// begins at phase after a list.
func returnOf(t *testing.T, events pipeline.EventsMode, phase, outage time.Duration) time.Duration {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{Seed: 7})
	must(t, err)
	s := kit.Simulate(t, rt, pipeline.Options{Events: events}, cri.Options{})
	received := s.Events(t, 0)
	time.Sleep(10*time.Second + phase)
	s.StopServing()
	s.Populate(simruntime.Population{Pods: 1, Containers: 1})
	time.Sleep(outage)
	s.Serve()
	back := time.Now()
	select {
	case <-received:
	case <-time.After(time.Hour):
		t.Fatal("no event of the pod within an hour")
	}
	return time.Since(back)
}

func TestFindsReplacedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	stop := serve(t, &fakeRuntime{}, listen(t, path))
	client := newClient(t, path, cri.Options{
		DialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true))},
	})
	wantPods(t, client, 0)
	stop() // removes the socket
	serve(t, &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}, listen(t, path))
	pods, err := client.ListPods(t.Context())
	if err != nil { // sent before the client saw the end of its connection
		pods, err = client.ListPods(t.Context())
	}
	if err != nil || len(pods) != 1 {
		t.Errorf("after a restart: %v, %v; want one pod", pods, err)
	}
}

// A runtime whose socket was removed still answers on open connections, and nobody else.
func TestRemovedSocketIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	serve(t, &fakeRuntime{}, listen(t, path))
	client := newClient(t, path, cri.Options{})
	wantPods(t, client, 0)
	if err := client.Degraded(); err != nil {
		t.Errorf("with a socket: %v", err)
	}
	must(t, os.Remove(path))
	wantPods(t, client, 0)
	if err := client.Degraded(); err == nil || !strings.Contains(err.Error(), path+" is gone") {
		t.Errorf("without a socket: %v, want that it is gone", err)
	}
}

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
				inject(t, rt, tt.fault)
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
						populate(t, rt, 1, 1)
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
		inject(t, rt, unresponsive)
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
		rt, err := simruntime.New(simruntime.Options{Seed: 7})
		must(t, err)
		p := kit.Simulate(t, rt, pipeline.Options{Events: pipeline.EventsAuto}, cri.Options{})
		up := func(want float64) {
			t.Helper()
			if got := kit.Metric(t, p.Metrics, "pleg_event_stream_up"); got != want {
				t.Errorf("pleg_event_stream_up is %v, want %v", got, want)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		up(1)
		inject(t, rt, simruntime.Fault{Hang: true})
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
				up(0)
			}
		}
		up(0)
		rt.ClearAll()
		time.Sleep(unresponsiveAfter)
		if ok, why := p.Healthy(); !ok {
			t.Errorf("not healthy when the runtime responds again: %v", why)
		}
		up(1)
	})
}
