package otlp_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

func TestHistoryTooShortIsAGap(t *testing.T) {
	inBubble(t, nodeOptions{history: 20}, func(n *node) {
		n.churn("a", 5)
		n.receiver.set(always(unavailable))
		n.churn("a", 100)
		n.receiver.set(nil)
		n.wait(time.Minute)
		n.requirePromises()
		records := n.receiver.got()
		var before int64
		gap := slices.IndexFunc(records, func(r logrecords.Record) bool { return r.Attributes["pleg.reason"] == "HistoryTooShort" })
		for _, r := range records[:gap] {
			before = max(before, r.Attributes["pleg.seq"].(int64))
		}
		end := records[len(records)-1]
		if got, want := records[gap].Attributes["pleg.missed"], end.Attributes["pleg.seq"].(int64)-before; got != want {
			n.t.Errorf("the Gap says %d missed events, want %d", got, want)
		}
		if end.Name != "pleg.synced" {
			n.t.Errorf("the last record is %s, want pleg.synced", end.Name)
		}
	})
}

// A receiver that is slower than the events.
func TestSlowReceiverLosesNothing(t *testing.T) {
	inBubble(t, nodeOptions{history: 100_000}, func(n *node) {
		n.receiver.set(always(answer{keep: true, after: 9 * time.Second}))
		for i := range 6 {
			words := "/s=running"
			for c := range 300 {
				words += fmt.Sprintf(" c%d-%d=running", c, i)
			}
			n.runtime.Set("a", words)
			n.wait(time.Second)
		}
		n.wait(time.Hour)
		n.requirePromises()
	})
}

// What the receiver rejects is counted and not sent again. What follows is.
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
		for name, want := range map[string]float64{"rejected_requests_total": 1, "exported_records_total": 3, "retries_total": 0} {
			if got := n.metric(name); got != want {
				n.t.Errorf("pleg_otlp_%s is %v, want %v", name, got, want)
			}
		}
	})
}

// A replay goes on after a request of it is rejected. If it is interrupted, it begins again,
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
					// A request that is rejected is followed by the next event, once a second.
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

// Random faults and random pods: every promise holds once the receiver accepts again. An outage costs nothing that the
// history has.
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
	if _, err := otlp.NewExporter(otlp.ExporterOptions{Client: new(receiver)}); err == nil || !strings.Contains(err.Error(), "ExporterOptions.Client and Source") {
		t.Errorf("got %v, want an error about the missing option", err)
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	_, err := otlp.NewExporter(otlp.ExporterOptions{Client: new(receiver), Source: new(script), Registerer: registry})
	kit.Must(t, err)
	kit.CheckDocumented(t, registry, "../docs/metrics.md", "pleg_otlp_")
}
