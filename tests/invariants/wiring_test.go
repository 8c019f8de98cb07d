package invariants_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// optionRow gives an option a value that is not the default, and checks its effect.
type optionRow struct {
	options pipeline.Options
	before  func(*kit.Pipeline) // Start
	after   time.Duration
	require func(*testing.T, *kit.Pipeline)
}

// Each option reaches its stage: a row gives it a value of its own.
func TestOptionsReachTheirStages(t *testing.T) {
	const unusual = 20 * time.Second
	hangs := func(r *kit.Pipeline, pods int) {
		kit.Fill(r.Runtime, pods, "c=running")
		for _, uid := range kit.UIDs(pods) {
			r.Runtime.SetPodFault(uid, plegtest.Hang)
		}
	}
	var log kit.Log
	own, metrics := podcache.New(), prometheus.NewRegistry()
	took := make(chan time.Duration, 100)
	rows := map[string]optionRow{
		"Runtime": {
			pipeline.Options{},
			func(r *kit.Pipeline) { r.Runtime.Set("a", "c=running") }, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) { requireState(t, r, "Started(c)") },
		},
		"Events": {
			pipeline.Options{Events: pipeline.EventsAuto},
			nil, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) {
				r.Runtime.Set("a", "c=running")
				r.Runtime.Announce("a", "c")
				synctest.Wait()
				requireState(t, r, "Started(c)") // a second before the next list
			},
		},
		"History": {
			pipeline.Options{History: 3},
			func(r *kit.Pipeline) { kit.Fill(r.Runtime, 8, "c=running") }, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) {
				sub, err := r.Subscribe(pleg.SubscribeOptions{After: pleg.Position{Epoch: r.Epoch(), Seq: 4}})
				kit.Must(t, err)
				if got := kit.Read(t, sub); got[0].Type != pleg.Gap || got[0].Reason != pleg.HistoryTooShort || got[0].Missed != 4 {
					t.Errorf("after the event 4 of 8: %+v, want a Gap: the log has 3", got[0])
				}
			},
		},
		"Store": {
			pipeline.Options{Store: store{own}},
			func(r *kit.Pipeline) { r.Runtime.Set("a", "c=running") }, time.Second / 2,
			func(t *testing.T, _ *kit.Pipeline) {
				if status, err := own.Get("a"); err != nil || status.Container("c") == nil {
					t.Errorf("the store has %+v, %v", status, err)
				}
			},
		},
		"Logger": {
			pipeline.Options{Logger: log.Logger()},
			func(r *kit.Pipeline) { r.Runtime.SetListFault(plegtest.Fail(errors.New("list failed"))) }, time.Second / 2,
			func(t *testing.T, _ *kit.Pipeline) { log.RequireLines(t, 1, "relist failed") },
		},
		"Registerer": {
			pipeline.Options{Registerer: metrics},
			nil, time.Second / 2,
			func(t *testing.T, _ *kit.Pipeline) { kit.RequireMetric(t, metrics, 1, "pleg_healthy") },
		},
		"KubeletMetricNames": {
			pipeline.Options{KubeletMetricNames: true},
			nil, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) {
				all, err := r.Metrics.Gather()
				kit.Must(t, err)
				if !slices.ContainsFunc(all, func(m *dto.MetricFamily) bool { return m.GetName() == "kubelet_pleg_relist_duration_seconds" }) {
					t.Error("no kubelet_pleg_relist_duration_seconds")
				}
			},
		},
		"ListTimeout": {
			pipeline.Options{ListTimeout: 7 * time.Second, InspectTimeout: 11 * time.Second},
			func(r *kit.Pipeline) { r.Runtime.SetListFault(plegtest.Hang) }, 7 * time.Second,
			func(t *testing.T, r *kit.Pipeline) { requireText(t, r.Look().Relist.Err, "list timeout of 7s") },
		},
		"InspectTimeout": {
			pipeline.Options{ListTimeout: 7 * time.Second, InspectTimeout: 11 * time.Second},
			func(r *kit.Pipeline) { hangs(r, 1) }, 11 * time.Second,
			func(t *testing.T, r *kit.Pipeline) {
				_, err := r.Cache().Get("p0")
				requireText(t, err, "inspect timeout of 11s")
			},
		},
		"RelistThreshold of lists": {
			pipeline.Options{RelistThreshold: unusual},
			func(r *kit.Pipeline) {
				var lists atomic.Int64
				r.Runtime.SetListFault(func(context.Context) error {
					if lists.Add(1) > 1 {
						return errors.New("list failed")
					}
					return nil
				})
			}, unusual + time.Nanosecond,
			func(t *testing.T, r *kit.Pipeline) {
				_, err := r.Healthy()
				requireText(t, err, "threshold is 20s: list pods: list failed")
				kit.RequireMetric(t, r.Metrics, 0, "pleg_healthy")
			},
		},
		"RelistThreshold of inspections": {
			pipeline.Options{RelistThreshold: unusual},
			func(r *kit.Pipeline) { hangs(r, 2) }, unusual + time.Second,
			func(t *testing.T, r *kit.Pipeline) {
				_, err := r.Healthy()
				requireText(t, err, "no inspection has succeeded for 21s; threshold is 20s; these pods wait: ns/name-p0, ns/name-p1")
				kit.RequireMetric(t, r.Metrics, 0, "pleg_healthy")
			},
		},
		"RelistPeriodWithEvents": {
			pipeline.Options{Events: pipeline.EventsAuto, RelistPeriodWithEvents: 7 * time.Second},
			nil, time.Second,
			func(t *testing.T, r *kit.Pipeline) { requirePeriod(t, r, 7*time.Second) },
		},
		"RelistPeriodWithEvents stays below a third of RelistThreshold": {
			pipeline.Options{Events: pipeline.EventsAuto, RelistThreshold: 9 * time.Second},
			nil, time.Second,
			func(t *testing.T, r *kit.Pipeline) { requirePeriod(t, r, 3*time.Second) },
		},
		"RelistPeriod of lists": {
			pipeline.Options{RelistPeriod: 3 * time.Second},
			nil, 10 * time.Second,
			func(t *testing.T, r *kit.Pipeline) {
				if got := r.Runtime.Counts().Lists; got != 4 {
					t.Errorf("%d lists in 10 s, want 4", got)
				}
			},
		},
		"RelistPeriod of retries": {
			pipeline.Options{RelistPeriod: 3 * time.Second, InspectTimeout: 5 * time.Second},
			func(r *kit.Pipeline) { hangs(r, 1) }, 5 * time.Second,
			func(t *testing.T, r *kit.Pipeline) { requireWait(t, r, 3*time.Second) },
		},
		"MaxQuarantine": {
			pipeline.Options{MaxQuarantine: 4 * time.Second, InspectTimeout: 5 * time.Second},
			func(r *kit.Pipeline) { hangs(r, 1) }, 5*time.Second + time.Minute,
			func(t *testing.T, r *kit.Pipeline) {
				for range 60 {
					time.Sleep(time.Second / 2)
					if q := r.Look().Quarantined; len(q) != 1 || time.Until(q[0].NextTry) > 2*time.Second {
						t.Fatalf("quarantined %+v, want a wait of at most half of MaxQuarantine", q)
					}
				}
			},
		},
		"MaxQuarantine below zero": {
			pipeline.Options{MaxQuarantine: -1, InspectTimeout: 5 * time.Second},
			func(r *kit.Pipeline) { hangs(r, 1) }, 5 * time.Second,
			func(t *testing.T, r *kit.Pipeline) { requireWait(t, r, 0) },
		},
		"MaxQuarantine of contradictions": {
			pipeline.Options{MaxQuarantine: 4 * time.Second},
			func(r *kit.Pipeline) {
				r.Runtime.Set("a", "c=exited")
				r.Runtime.SetStatus("a", plegtest.Status(plegtest.Pod("a", "c=running")))
			}, time.Minute,
			func(t *testing.T, r *kit.Pipeline) {
				if n := r.Runtime.Counts().Inspections["a"]; n < 15 || n > 18 { // after 1, 2, 4, 4, ... s
					t.Errorf("%d inspections in a minute, want one each 4 s", n)
				}
			},
		},
		"Inspectors of inspections": {
			pipeline.Options{Inspectors: 3},
			func(r *kit.Pipeline) {
				kit.Fill(r.Runtime, 20, "c=running")
				r.Runtime.SetInspectFault(plegtest.Delay(time.Second / 10))
			}, time.Second / 20,
			func(t *testing.T, r *kit.Pipeline) {
				if got := r.Runtime.Counts().InFlight; got != 3 || r.Look().Inspectors != 3 || r.Look().InFlight != 3 {
					t.Errorf("%d in flight, status %+v, want 3", got, r.Look())
				}
				kit.RequireMetric(t, r.Metrics, 17, "pleg_differ_queue_length")
			},
		},
		"Inspectors of retries": { // half of the slots are theirs, so four need not share the longest wait
			pipeline.Options{InspectTimeout: 2 * time.Minute},
			func(r *kit.Pipeline) {
				kit.Fill(r.Runtime, 4, "c=running")
				r.Runtime.SetInspectFault(func(ctx context.Context) error {
					began := time.Now()
					<-ctx.Done()
					took <- time.Since(began)
					return ctx.Err()
				})
			}, 6 * time.Minute,
			func(t *testing.T, _ *kit.Pipeline) {
				for n := range 16 { // the first inspections, and three retries of each pod
					if got, want := <-took, []time.Duration{2 * time.Minute, 10 * time.Second, 20 * time.Second, 40 * time.Second}[n/4]; got != want {
						t.Errorf("inspection %d hung for %v, want %v", n, got, want)
					}
				}
			},
		},
		"InspectTimeout below a second": {
			pipeline.Options{InspectTimeout: 300 * time.Millisecond},
			func(r *kit.Pipeline) { hangs(r, 1) }, 300 * time.Millisecond,
			func(t *testing.T, r *kit.Pipeline) { requireWait(t, r, pipeline.DefaultRelistPeriod) },
		},
		"Inspectors and the time they take": {
			pipeline.Options{},
			func(r *kit.Pipeline) {
				kit.Fill(r.Runtime, 4, "c=running")
				r.Runtime.SetInspectFault(plegtest.Delay(2 * time.Second))
			}, 2 * time.Second,
			func(t *testing.T, r *kit.Pipeline) {
				if got := r.Look().InspectionTook; got != 2*time.Second {
					t.Errorf("inspections took %v, want 2s", got)
				}
			},
		},
		"Inspectors and who waits": {
			pipeline.Options{},
			func(r *kit.Pipeline) { hangs(r, 2) }, 10 * time.Second,
			func(t *testing.T, r *kit.Pipeline) {
				if got := r.Look().Waiting; got != 2 {
					t.Errorf("%d pods wait, want 2", got)
				}
			},
		},
		"KubeletEvents": {
			pipeline.Options{KubeletEvents: true},
			func(r *kit.Pipeline) {
				r.Runtime.Set("a", "c=exited")
				r.Runtime.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].StartedAt = time.Now() })
			}, time.Second,
			func(t *testing.T, r *kit.Pipeline) { requireState(t, r, "Died(c)") },
		},
		"KubeletEvents of a list after a break": { // the list is believed, although it lacks every pod
			pipeline.Options{KubeletEvents: true},
			func(r *kit.Pipeline) { r.Runtime.Set("a", "c=running") }, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) {
				r.Runtime.SetListFault(plegtest.Fail(errInspect))
				kit.Relist(1)
				r.Runtime.SetListFault(nil)
				r.Runtime.Remove("a")
				kit.Relist(1)
				requireState(t, r, "Started(c) Died(c) Removed(c)")
			},
		},
		"KubeletEvents of a container that moves to another pod": {
			pipeline.Options{KubeletEvents: true},
			func(r *kit.Pipeline) { r.Runtime.Set("a", "c=running") }, time.Second / 2,
			func(t *testing.T, r *kit.Pipeline) {
				r.Runtime.Set("a", "d=running")
				r.Runtime.Set("b", "c=running")
				kit.Relist(1)
				requireState(t, r, "Started(c) Died(c) Removed(c) Started(d)")
			},
		},
		"KubeletEvents of contradictions": {
			pipeline.Options{KubeletEvents: true},
			func(r *kit.Pipeline) {
				r.Runtime.Set("a", "c=exited")
				r.Runtime.SetStatus("a", plegtest.Status(plegtest.Pod("a", "c=running")))
			}, time.Minute,
			func(t *testing.T, r *kit.Pipeline) {
				if n := r.Runtime.Counts().Inspections["a"]; n != 1 {
					t.Errorf("%d inspections, want one: the kubelet believes it", n)
				}
			},
		},
		"KubeletEvents are off": {
			pipeline.Options{},
			func(r *kit.Pipeline) {
				r.Runtime.Set("a", "c=exited")
				r.Runtime.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].StartedAt = time.Now() })
			}, time.Second,
			func(t *testing.T, r *kit.Pipeline) { requireState(t, r, "Started(c) Died(c)") },
		},
	}
	kit.RequireRows(t, pipeline.Options{}, rows)
	for name, row := range rows {
		kit.Bubble(t, name, func(t *testing.T) {
			o := row.options
			runtime := plegtest.New()
			if o.Runtime = runtime.Basic(); o.Events != "" {
				o.Runtime = runtime
			}
			r := kit.New(t, o)
			r.Runtime = runtime
			if row.before != nil {
				row.before(r)
			}
			r.Start(t)
			time.Sleep(row.after)
			synctest.Wait()
			row.require(t, r)
		})
	}
}

func requireText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
}

func requirePeriod(t *testing.T, r *kit.Pipeline, want time.Duration) {
	t.Helper()
	if got := r.Look().Relist.Period; got != want {
		t.Errorf("the relist period with events is %v, want %v", got, want)
	}
}

func requireWait(t *testing.T, r *kit.Pipeline, want time.Duration) {
	t.Helper()
	if q := r.Look().Quarantined; len(q) != 1 || time.Until(q[0].NextTry) != want {
		t.Errorf("quarantined %+v, want one pod that waits for %v", q, want)
	}
}

// requireState compares the events of the log from its start.
func requireState(t *testing.T, r *kit.Pipeline, want string) {
	t.Helper()
	sub, err := r.Subscribe(pleg.SubscribeOptions{Since: time.Unix(1, 0)})
	kit.Must(t, err)
	if got := kit.WordsByPod(kit.Read(t, sub))["a"]; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// EventsRequire over a runtime without events ends Run, with its error also if the context of Run ends before the
// stages have ended; EventsAuto does not.
func TestEventsModes(t *testing.T) {
	for mode, want := range map[pipeline.EventsMode]error{pipeline.EventsRequire: pleg.ErrNoEvents, pipeline.EventsAuto: nil, pipeline.EventsOff: nil} {
		kit.Bubble(t, string(mode), func(t *testing.T) {
			runtime := plegtest.New()
			runtime.SetWatchFault(func(context.Context) error {
				time.Sleep(time.Second / 8)
				return fmt.Errorf("events: %w", pleg.ErrNoEvents)
			})
			runtime.Set("a", "c=running")
			runtime.SetInspectFault(func(context.Context) error { time.Sleep(time.Second / 2); return nil })
			r := kit.New(t, pipeline.Options{Runtime: runtime, Events: mode})
			limit := time.Minute
			if want != nil {
				limit = time.Second / 4
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := r.Run(ctx); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("Run = %v, want %v", err, want)
			}
		})
	}
}

// One pod may hang forever: the time counts from the moment at which a second pod waits.
func TestHealthyWhileASecondPodWaitsForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		kit.Fill(r.Runtime, 3, "c=running")
		r.StartBetweenLists(t)
		for n, uid := range kit.UIDs(2) {
			r.Runtime.SetPodFault(uid, plegtest.Hang)
			r.Runtime.Set(uid, "c=exited")
			time.Sleep([]time.Duration{10 * time.Minute, 5 * time.Second}[n])
			if ok, err := r.Healthy(); !ok {
				t.Errorf("unhealthy while %d pods wait, the newest for seconds: %v", n+1, err)
			}
		}
		time.Sleep(pipeline.DefaultRelistThreshold)
		if ok, err := r.Healthy(); ok || !strings.Contains(err.Error(), "ns/name-p0, ns/name-p1") {
			t.Errorf("Healthy = %v, %v although two pods have waited for longer than the threshold", ok, err)
		}
	})
}

// A pod that only a single-pod list has shown counts. The facts in a hint about a container that no
// list shows are kept for a minute.
func TestBetweenTwoLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		r := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto, RelistPeriod: time.Hour})
		runtime.Set("a", "c=running")
		r.Start(t)
		time.Sleep(time.Minute)
		runtime.Set("b", "c1=running")
		if _, err := r.RelistPod(t.Context(), "b"); err != nil || r.Look().Relist.Pods != 2 {
			t.Errorf("%d pods, %v, want 2 after the list of the second", r.Look().Relist.Pods, err)
		}
		for _, list := range []string{"all", "pod"} {
			kit.RequireMetric(t, r.Metrics, 1, "pleg_changes_total", list)
		}
		runtime.AnnounceHint(pleg.Hint{
			UID: "b", Container: "short", State: pleg.StateExited,
			Status: &pleg.ContainerStatus{ID: "short", State: pleg.StateExited, ExitCode: 7},
		})
		synctest.Wait()
		if got := r.Cache().GetRemoved("short"); got == nil || got.ExitCode != 7 {
			t.Errorf("GetRemoved = %+v, want the status of the hint", got)
		}
		runtime.AnnounceHint(pleg.Hint{
			UID: "a", Container: "other", State: pleg.StateExited,
			Others: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited, ExitCode: 9}},
		})
		synctest.Wait()
		if got := r.Cache().GetRemoved("c"); got == nil || got.ExitCode != 9 {
			t.Errorf("GetRemoved = %+v, want the status of the hint: the cache says that the container runs", got)
		}
		if pods, _, err := r.Pods(t.Context(), "b", "a", "b"); err != nil || len(pods) != 2 {
			t.Errorf("Pods of two UIDs, one twice = %+v, %v", pods, err)
		}
	})
}

// With events lists of all pods are rare, but not when a pod is to be inspected again: because its inspection
// failed, or on request.
func TestNextInspectionComesSoonWithEvents(t *testing.T) {
	for name, again := range map[string]func(*kit.Pipeline){
		"a failure":        func(p *kit.Pipeline) { p.Runtime.SetPodFault("a", plegtest.Fail(errInspect)); p.RequestRelist("a") },
		"RequestReinspect": func(p *kit.Pipeline) { p.RequestReinspect("a") },
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			runtime := plegtest.New()
			p := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto})
			p.Runtime = runtime
			runtime.Set("a", "c=running")
			p.Start(t)
			time.Sleep(11 * time.Second)
			runtime.Set("a", "d=running")
			again(p)
			synctest.Wait()
			runtime.SetPodFault("a", nil)
			time.Sleep(pipeline.DefaultRelistPeriod)
			synctest.Wait()
			if status, err := p.Cache().Get("a"); err != nil || status.Container("d") == nil {
				t.Errorf("a period later the cache has %+v, %v, want container d", status, err)
			}
		})
	}
}

// When a loop over the events ends, its subscriber is removed. A loop that cannot begin gets the error.
func TestWatchLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		for range r.Watch(t.Context(), pleg.SubscribeOptions{Replay: true}) { //nolint:errcheck // nothing is read
			break
		}
		synctest.Wait()
		kit.RequireMetric(t, r.Metrics, 0, "pleg_subscribers")
		var errs []error
		for _, err := range r.Watch(t.Context(), pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "a in"}}) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], pleg.ErrInvalidOption) {
			t.Errorf("a loop with a bad selector got %v, want ErrInvalidOption", errs)
		}
	})
}
