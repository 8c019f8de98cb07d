package cri_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	s := kit.Simulate(t, rt, pipeline.Options{Events: events})
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

// TestReconnectsSoonAfterRuntimeReturns lists each second during an outage. The first
// list after the return must succeed, however long the outage was.
func TestReconnectsSoonAfterRuntimeReturns(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{500 * time.Millisecond, 10 * time.Second, 2 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outlet{}
				start := func() (stop func()) {
					return serve(t, &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}, o.listen())
				}
				stop := start()
				client := o.client(t, cri.Options{})
				listPods(t, client)
				o.current.Store(nil)
				stop()
				for end := time.Now().Add(outage); time.Now().Before(end); time.Sleep(min(time.Second, time.Until(end))) {
					if _, err := client.ListPods(t.Context()); status.Code(err) != codes.Unavailable {
						t.Fatalf("list of a runtime that is gone: %v, want Unavailable", err)
					}
				}
				start()
				time.Sleep(400 * time.Millisecond)
				if _, err := client.ListPods(t.Context()); err != nil {
					t.Errorf("0.4 s after the runtime's return: %v", err)
				}
			})
		})
	}
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

// The status calls of 40 of 100 pods hang, some for the sandbox and some for the
// container. The events of the others arrive as they change, and the 40 recover once
// the runtime answers again.
func TestHungPodsDelayNoOtherPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods, hung, steps = 100, 40, 8
		rt, err := simruntime.New(simruntime.Options{Seed: 7})
		must(t, err)
		all := populate(t, rt, pods, 1)
		hangs := hangStatusCalls(t, rt, all[:hung])
		p := kit.Simulate(t, rt, pipeline.Options{})
		events := p.Events(t, 100_000)
		time.Sleep(20*time.Second + pipeline.DefaultRelistPeriod/2) // between two lists
		restartAll(t, rt, all[hung:])                               // whose inspections overtake all that hang
		time.Sleep(10 * time.Second)
		for len(events) > 0 {
			<-events
		}
		received := make(chan int)
		go func() { received <- countInTime(t, events, hangs) }()
		for range steps {
			restartAll(t, rt, all[hung:])
			time.Sleep(pipeline.DefaultRelistPeriod)
		}
		// An inspection that runs, or hangs in a place that it lends, is not in quarantine.
		if got := len(p.Quarantined()); got < hung-2*pipeline.DefaultInspectors {
			t.Errorf("%d of %d pods in quarantine", got, hung)
		}
		rt.ClearAll()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for uid := range hangs {
			if st, err := p.Cache().Get(uid); err != nil || len(st.Containers) != 1 {
				t.Errorf("pod %s 10 s after the runtime answers again: %+v, %v", uid, st, err)
			}
		}
		if got := p.Quarantined(); len(got) > 0 {
			t.Errorf("%d pods in quarantine, want none", len(got))
		}
		_ = p.Stop() // reports its error at the end of the test
		if got, want := <-received, 2*steps*(pods-hung); got != want {
			t.Errorf("%d events of the other pods, want %d", got, want)
		}
	})
}

// hangStatusCalls makes a status call of each pod hang and returns the pods.
func hangStatusCalls(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) map[pleg.PodUID]bool {
	t.Helper()
	hangs := make(map[pleg.PodUID]bool)
	for n, p := range pods {
		rpc := []string{"PodSandboxStatus", "ContainerStatus"}[n%2]
		inject(t, rt, simruntime.Fault{RPC: rpc, PodUID: p.UID, Hang: true})
		hangs[pleg.PodUID(p.UID)] = true
	}
	return hangs
}

// countInTime counts the events until their channel is closed, except those of these
// pods, and requires that each arrives without delay.
func countInTime(t *testing.T, events <-chan pleg.Event, except map[pleg.PodUID]bool) (n int) {
	for ev := range events {
		if except[ev.PodUID] {
			continue
		}
		if late := time.Since(ev.ObservedAt); late > 0 {
			t.Errorf("%v is late by %v", ev, late)
		}
		n++
	}
	return n
}

// restartAll restarts the running container of each pod.
func restartAll(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) {
	t.Helper()
	for _, pod := range pods {
		now, _ := rt.Pod(pod.UID)
		running := slices.IndexFunc(now.Containers, func(c simruntime.Container) bool { return c.State == simruntime.Running })
		_, err := rt.RestartContainer(now.Containers[running].ID)
		must(t, err)
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
		p := kit.Simulate(t, rt, pipeline.Options{Events: pipeline.EventsAuto})
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
