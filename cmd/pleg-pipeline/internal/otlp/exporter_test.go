package otlp_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	nodes "github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A rejected record is counted and not sent again. What follows is.
func TestRejectedRecordsAreDropped(t *testing.T) {
	inBubble(t, nodeOptions{}, func(n *node) {
		n.wait(time.Second)
		n.receiver.set(always(rejects))
		n.runtime.Set("b", "c1=running")
		n.wait(2 * time.Second)
		n.receiver.set(nil)
		n.runtime.Set("c", "c2=running")
		n.wait(time.Minute)
		if got, want := n.receiver.names(), []string{"pleg.gap 0", "pleg.synced 0", "pleg.container.started 2"}; !slices.Equal(got, want) {
			n.t.Errorf("got %v, want %v", got, want)
		}
		for name, want := range map[string]float64{"rejected_requests_total": 1, "exported_records_total": 3, "retries_total": 0, "lag_seconds": 3} {
			if got := n.metric(name); got != want {
				n.t.Errorf("pleg_otlp_%s is %v, want %v", name, got, want)
			}
		}
	})
}

// A replay continues after one of its requests is rejected. If it is interrupted, it begins again,
// with its Gap.
func TestRequestOfAReplayFails(t *testing.T) {
	words := ""
	for i := range 2 * otlp.MaxBatch {
		words += fmt.Sprintf(" c%d=running", i)
	}
	for name, tc := range map[string]struct {
		request int
		fault   answer
		gaps    int
	}{
		"rejected":    {1, rejects, 0},
		"interrupted": {2, unavailable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{before: func(n *node) {
				n.runtime.Set("a", words)
				n.receiver.set(nth(tc.request, tc.fault))
			}}, func(n *node) {
				n.wait(time.Minute)
				names := n.receiver.names()
				if got := strings.Count(strings.Join(names, " "), "pleg.gap"); got != tc.gaps || len(names) == 0 || !strings.HasPrefix(names[len(names)-1], "pleg.synced") {
					n.t.Errorf("got %v, want %d Gaps and Synced at the end", names, tc.gaps)
				}
				if !slices.Contains(n.receiver.sizes, 256) {
					n.t.Errorf("requests of %v records, want 256 of a long replay", n.receiver.sizes)
				}
				if tc.gaps > 0 {
					n.requirePromises()
				}
			})
		})
	}
}

// The time between two requests doubles up to 15 s, and half of it is random.
func TestRetriesBackOff(t *testing.T) {
	for name, fault := range map[string]answer{"unavailable": unavailable, "rejected": rejects} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{before: func(n *node) { n.receiver.set(always(fault)) }}, func(n *node) {
				for range 10 {
					n.churn("a", 60)
				}
				for i, longest := range []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 15 * time.Second} {
					// After a rejected request the next event is sent, once a second.
					if waited := n.receiver.at[i+1].Sub(n.receiver.at[i]); waited < longest/2 || waited > longest+time.Second {
						n.t.Errorf("wait %d is %v, want %v to %v", i+1, waited, longest/2, longest)
					}
				}
			})
		})
	}
}

// "make faults" runs more.
var randomSeeds = flag.Uint64("otlp.seeds", 6, "number of seeds of TestRandomFaults")

// Random faults and random pods: every promise holds once the receiver accepts again. An outage costs no event that
// is still in the history.
func TestRandomFaults(t *testing.T) {
	for seed := range *randomSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			o := nodeOptions{history: 400 + random.IntN(1000), exporterFirst: random.IntN(2) == 0}
			inBubble(t, o, func(n *node) {
				for range 40 {
					n.receiver.set(randomFault(random.Uint64()))
					n.randomPods(random)
				}
				n.receiver.set(nil)
				n.wait(10 * time.Minute)
				n.requirePromises()
				if retries, rejected := n.metric("retries_total"), n.metric("rejected_requests_total"); retries == 0 || rejected != 0 {
					n.t.Errorf("%v retries and %v rejected requests, want retries alone", retries, rejected)
				}
			})
		})
	}
}

// randomFault returns a fault that is different for each request.
func randomFault(seed uint64) func(int) answer {
	random := rand.New(rand.NewPCG(seed, 2))
	answers := []answer{
		accepts, accepts, unavailable,
		{keep: true, after: 3 * time.Second},
		{keep: true, after: time.Hour},
		{keep: true, err: unavailable.err},
		{after: time.Hour},
		{err: context.DeadlineExceeded},
	}
	if random.IntN(2) == 0 { // some time without faults
		return nil
	}
	return func(int) answer { return answers[random.IntN(len(answers))] }
}

// randomPods makes a few changes within a few seconds.
func (n *node) randomPods(random *rand.Rand) {
	for range 1 + random.IntN(10) {
		pod := pleg.PodUID(fmt.Sprint("p", random.IntN(5)))
		words := ""
		for c := range random.IntN(60) {
			words += fmt.Sprintf(" %s-c%d-%d=%s", pod, c, random.IntN(3), []string{"running", "exited", "created"}[random.IntN(3)])
		}
		n.runtime.Set(pod, words)
		n.wait(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []otlp.ExporterOptions{{Client: new(receiver)}, {Source: new(script)}} {
		if _, err := otlp.NewExporter(o); !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != "new exporter: ExporterOptions.Client and Source must not be nil" {
			t.Errorf("got %v, want an error about the missing option", err)
		}
	}
	o := otlp.ExporterOptions{Client: new(receiver), Source: new(script), Registerer: prometheus.NewRegistry()}
	_, err := otlp.NewExporter(o)
	kit.Must(t, err)
	if _, err := otlp.NewExporter(o); !errors.As(err, new(prometheus.AlreadyRegisteredError)) || !strings.HasPrefix(err.Error(), "new exporter: ") {
		t.Errorf("a second exporter with the same metrics: %v, want that they are registered", err)
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	_, err := otlp.NewExporter(otlp.ExporterOptions{Client: new(receiver), Source: new(script), Registerer: registry})
	kit.Must(t, err)
	kit.CheckDocumented(t, registry, "../../../../docs/metrics.md", "pleg_otlp_")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	kit.Golden(t, "testdata/metrics.golden", answer.Body.String())
}

// script is a source that sends the events of the next part with each call, and then waits.
type script struct {
	nodes.Pipeline

	mu    sync.Mutex
	parts [][]pleg.Event
	// asked are the subscriptions that were asked for.
	asked []pleg.SubscribeOptions
	// err ends the source after the last part.
	err error
	// pause is the time before each event, in which the earlier events are sent.
	pause time.Duration
}

// Watch implements [nodes.Pipeline].
func (s *script) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		s.mu.Lock()
		s.asked = append(s.asked, o)
		var part []pleg.Event
		if len(s.parts) > 0 {
			part, s.parts = s.parts[0], s.parts[1:]
		}
		last := len(s.parts) == 0
		s.mu.Unlock()
		for _, ev := range part {
			time.Sleep(s.pause)
			if !yield(ev, nil) {
				return
			}
		}
		if last && s.err != nil {
			yield(pleg.Event{}, s.err)
			return
		}
		<-ctx.Done()
	}
}

func (s *script) subscriptions() []pleg.SubscribeOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func event(kind pleg.EventType, seq uint64) pleg.Event {
	ev := pleg.Event{Type: kind, Epoch: "e", Seq: seq, ObservedAt: time.Now()}
	if kind != pleg.Gap && kind != pleg.Synced && kind != pleg.Bookmark {
		ev.PodUID = "p"
	}
	return ev
}

// Rows: the events of a source, the exported records, and where the exporter resumes.
func TestExporterFollowsItsSource(t *testing.T) {
	start := []pleg.Event{event(pleg.Gap, 5), event(pleg.ContainerStarted, 3), event(pleg.ContainerStarted, 5), event(pleg.Synced, 5)}
	none := pleg.Position{Epoch: "none"}
	started := []string{"pleg.gap 5", "pleg.container.started 3", "pleg.container.started 5", "pleg.synced 5"}
	for name, tc := range map[string]struct {
		parts [][]pleg.Event
		after []pleg.Position
		want  []string
	}{
		"events, a bookmark and one that it has": {
			parts: [][]pleg.Event{append(slices.Clone(start), event(pleg.PodSync, 6), event(pleg.Bookmark, 6), event(pleg.PodSync, 6), event(pleg.PodSync, 7))},
			after: []pleg.Position{none},
			want:  append(slices.Clone(started), "pleg.pod.sync 6", "pleg.pod.sync 7"),
		},
		"a Synced without a Gap": {
			parts: [][]pleg.Event{append(slices.Clone(start), event(pleg.PodSync, 6), event(pleg.Synced, 6), event(pleg.PodSync, 7))},
			after: []pleg.Position{none},
			want:  append(slices.Clone(started), "pleg.pod.sync 6", "pleg.pod.sync 7"),
		},
		"a hole": {
			parts: [][]pleg.Event{append(slices.Clone(start), event(pleg.PodSync, 6), event(pleg.PodSync, 8)), start},
			after: []pleg.Position{none, {Epoch: "e", Seq: 6}},
			want:  slices.Concat(started, []string{"pleg.pod.sync 6"}, started),
		},
		"another epoch": {
			parts: [][]pleg.Event{append(slices.Clone(start), pleg.Event{Type: pleg.PodSync, Epoch: "f", Seq: 6}), start},
			after: []pleg.Position{none, {Epoch: "e", Seq: 5}},
			want:  slices.Concat(started, started),
		},
		"the pipeline stops": {
			parts: [][]pleg.Event{append(slices.Clone(start), pleg.Event{Type: pleg.Gap, Reason: pleg.Stopped, Epoch: "e", Seq: 9, Missed: 4})},
			after: []pleg.Position{none},
			want:  append(slices.Clone(started), "pleg.gap 9"),
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			s, r := &script{parts: tc.parts, pause: time.Second}, new(receiver)
			stop := r.export(t, nil, s)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := r.names(); !slices.Equal(got, tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
			everything := pleg.Filter{Types: eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)}
			var want []pleg.SubscribeOptions
			for _, after := range tc.after {
				want = append(want, pleg.SubscribeOptions{Name: "otlp", After: after, Bookmarks: true, Filter: everything})
			}
			if got := s.subscriptions(); !reflect.DeepEqual(got, want) {
				t.Errorf("it asked for %+v, want %+v", got, want)
			}
			stop()
		})
	}
}

// An error of the source does not end Run.
func TestErrorOfTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, registry := &script{err: errTestEnds}, prometheus.NewPedanticRegistry()
		stop := new(receiver).export(t, registry, fails)
		time.Sleep(time.Minute)
		if got := len(fails.subscriptions()); got < 4 {
			t.Errorf("a source that fails was asked %d times in a minute, want it again and again", got)
		}
		stop()
		new(receiver).export(t, registry, fails)() // the metrics of the first have ended with it
	})
}

// A receiver that rejects everything has accepted nothing.
func TestStatusOfRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(receiver)
		r.set(always(rejects))
		e, err := otlp.NewExporter(otlp.ExporterOptions{Client: r, Source: &script{parts: [][]pleg.Event{{event(pleg.Gap, 0), event(pleg.Synced, 0)}}, pause: time.Second}})
		kit.Must(t, err)
		began := time.Now()
		kit.Run(t, e.Run)
		time.Sleep(time.Minute)
		if last, err := e.Status(); !last.Equal(began) || err == nil || !strings.Contains(err.Error(), "records are rejected") {
			t.Errorf("the receiver accepted something %v after the beginning, %v", last.Sub(began), err)
		}
	})
}

// An exporter that ends during a request has no error: the receiver has rejected nothing.
func TestEndDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := new(receiver), new(kit.Log)
		r.set(always(answer{after: time.Hour}))
		source := &script{parts: [][]pleg.Event{{event(pleg.Gap, 0), event(pleg.Synced, 0)}}, pause: time.Second}
		e, err := otlp.NewExporter(otlp.ExporterOptions{Client: r, Source: source, Logger: log.Logger()})
		kit.Must(t, err)
		stop := kit.Run(t, e.Run)
		time.Sleep(30 * time.Second)
		_ = stop() // Run reports the error
		if len(r.sizes) != 1 {
			t.Errorf("%d requests, want one under way", len(r.sizes))
		}
		log.RequireLines(t, 0, "level=WARN")
	})
}

// The receiver accepts one record after five seconds, and then none: what the status, the metrics and the log say.
func TestErrorOfTheReceiver(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  answer
		within time.Duration
		err    string
		counts map[string]float64
	}{
		"rejects":     {rejects, 0, "2 records are rejected: rpc error: code = InvalidArgument desc = no", map[string]float64{"rejected_requests": 1, "retries": 0}},
		"unavailable": {unavailable, 0, "export 2 records: rpc error: code = Unavailable desc = no", map[string]float64{"rejected_requests": 0, "retries": 1}},
		"hangs":       {answer{after: time.Hour}, time.Minute, "export 2 records: context deadline exceeded", map[string]float64{"rejected_requests": 0, "retries": 1}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			r, registry, log := new(receiver), prometheus.NewPedanticRegistry(), new(kit.Log)
			r.set(func(request int) answer {
				if request == 1 {
					return answer{keep: true, after: 5 * time.Second}
				}
				return tc.fault
			})
			source := &script{parts: [][]pleg.Event{{event(pleg.Gap, 0), event(pleg.Synced, 0), event(pleg.PodSync, 1)}}, pause: time.Second}
			e, err := otlp.NewExporter(otlp.ExporterOptions{Client: r, Source: source, Registerer: registry, Logger: log.Logger()})
			kit.Must(t, err)
			began := time.Now()
			kit.Run(t, e.Run)
			time.Sleep(6*time.Second + tc.within - time.Nanosecond)
			if _, err := e.Status(); err != nil {
				t.Errorf("after %v: %v, want no error yet", time.Since(began), err)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if last, err := e.Status(); !last.Equal(began.Add(6*time.Second)) || err == nil || err.Error() != tc.err {
				t.Errorf("the receiver accepted something %v after the beginning, %v, want 6s and %s", last.Sub(began), err, tc.err)
			}
			log.RequireLines(t, 1, `level=WARN msg="cannot export events" stage=otlp err="`+tc.err+`" retryIn=`)
			kit.RequireSum(t, registry, 6, "pleg_otlp_lag_seconds") // the events are as old as the exporter
			kit.RequireMetric(t, registry, 1, "pleg_otlp_exported_records_total")
			for name, want := range tc.counts {
				kit.RequireMetric(t, registry, want, "pleg_otlp_"+name+"_total")
			}
			time.Sleep(time.Minute) // the source has no more: records come again only from its history
			synctest.Wait()
			if !slices.Equal(r.sizes, []int{1, 2}) {
				t.Errorf("requests of %v records, want that none is sent again by itself", r.sizes)
			}
		})
	}
}
