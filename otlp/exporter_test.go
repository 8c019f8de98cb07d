package otlp_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// An outage costs nothing that the history has, and no request is larger than allowed.
func TestOutageLosesNothing(t *testing.T) {
	for name, down := range map[string]answer{
		"unavailable":         refuse(codes.Unavailable, 0),
		"does not answer":     {after: time.Hour},
		"stored, no answer":   {keep: true, after: time.Hour},
		"stored, then cut":    {keep: true, cut: true},
		"aborted":             refuse(codes.Aborted, 0),
		"exhausted, retry in": refuse(codes.ResourceExhausted, 20*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{}.WithMaxBatch(10, 0)}, func(n *node) {
				n.churn("a", 5)
				n.receiver.set(always(down))
				n.churn("b", 60)
				n.wait(4 * time.Minute)
				if got := n.metric("waiting_age_seconds"); got < 250 {
					n.t.Errorf("the oldest event has waited for %v s, want 300 or a little less", got)
				}
				n.receiver.set(nil)
				n.wait(time.Minute)
				n.requirePromises(10)
				n.requireMetrics(map[string]float64{"waiting_age_seconds": 0, "dropped_records_total": 0})
				if n.metric("retries_total") == 0 {
					n.t.Error("the metrics show no retries")
				}
			})
		})
	}
}

func TestHistoryTooShortIsAGap(t *testing.T) {
	inBubble(t, nodeOptions{history: 20}, func(n *node) {
		n.churn("a", 5)
		n.receiver.set(always(refuse(codes.Unavailable, 0)))
		n.churn("a", 100)
		n.receiver.set(nil)
		n.wait(time.Minute)
		n.requirePromises(otlp.MaxBatch)
		_, records := n.receiver.got()
		var before int64
		gap := slices.IndexFunc(records, func(r *logsv1.LogRecord) bool { return attribute(r, "pleg.reason") == "HistoryTooShort" })
		for _, r := range records[:gap] {
			before = max(before, attribute(r, "pleg.seq").(int64))
		}
		end := records[len(records)-1]
		if got, want := attribute(records[gap], "pleg.missed"), attribute(end, "pleg.seq").(int64)-before-20; got != want {
			n.t.Errorf("the Gap says %d missed events, want %d", got, want)
		}
		if got := end.GetEventName(); got != "pleg.synced" {
			n.t.Errorf("the last record is %s, want pleg.synced", got)
		}
	})
}

// A receiver that is slower than the events, which come faster than the buffers hold. Each
// request has a bound in bytes.
func TestSlowReceiverLosesNothing(t *testing.T) {
	const bound = 64 << 10
	inBubble(t, nodeOptions{history: 100_000, exporter: otlp.ExporterOptions{}.WithMaxBatch(0, bound)}, func(n *node) {
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
		n.requirePromises(otlp.MaxBatch)
		if n.metric("retries_total") == 0 {
			n.t.Error("the receiver was not slower than the events")
		}
		requests, _ := n.receiver.got()
		largest := 0
		for _, r := range requests {
			largest = max(largest, proto.Size(r.GetResourceLogs()[0].GetScopeLogs()[0]))
		}
		if largest > bound+200 || largest < bound/2 {
			n.t.Errorf("the largest request has %d bytes, want at most %d", largest, bound)
		}
	})
}

// What the receiver rejects is counted and not sent again. What follows is.
func TestRejectedRecordsAreDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  answer
		counter string
		records int // of the second event, and the rest
	}{
		"a request": {refuse(codes.InvalidArgument, 0), "dropped_records_total", 1},
		"a part":    {answer{keep: true, partial: &collogsv1.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "too old"}}, "refused_records_total", 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{}, func(n *node) {
				n.wait(time.Second)
				n.receiver.set(always(tc.answer))
				n.runtime.Set("b", "c1=running")
				n.wait(2 * time.Second)
				n.receiver.set(nil)
				n.runtime.Set("c", "c2=running")
				n.wait(time.Minute)
				got := n.receiver.names()
				want := []string{"pleg.gap 0", "pleg.synced 0", "pleg.container.started 1", "pleg.container.started 2"}
				if tc.records == 1 {
					want = slices.Delete(want, 2, 3)
				}
				if !slices.Equal(got, want) {
					n.t.Errorf("got %v, want %v", got, want)
				}
				n.requireMetrics(map[string]float64{tc.counter: 1, "exported_records_total": 3, "exported_gaps_total": 1, "retries_total": 0})
			})
		})
	}
}

// A replay goes on after a request of it is rejected. If it is interrupted, it begins again,
// with its Gap.
func TestRequestOfAReplayFails(t *testing.T) {
	for name, tc := range map[string]struct {
		fails int // the number of the request
		code  codes.Code
		gaps  int
	}{
		"rejected":    {1, codes.InvalidArgument, 0},
		"interrupted": {2, codes.Unavailable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{}.WithMaxBatch(2, 0), before: func(n *node) {
				n.runtime.Set("a", "c1=running c2=running c3=running c4=running")
				n.receiver.set(nth(tc.fails, refuse(tc.code, 0)))
			}}, func(n *node) {
				n.wait(time.Minute)
				names := n.receiver.names()
				if got := strings.Count(strings.Join(names, " "), "pleg.gap"); got != tc.gaps || len(names) == 0 || names[len(names)-1] != "pleg.synced 4" {
					n.t.Errorf("got %v, want %d Gaps and Synced at the end", names, tc.gaps)
				}
				if tc.gaps > 0 {
					n.requirePromises(2)
				}
			})
		})
	}
}

// The time between two requests if the first fails.
func TestRetriesBackOff(t *testing.T) {
	for name, tc := range map[string]struct {
		asked time.Duration   // by the first answer, if not 0; otherwise all requests fail
		waits []time.Duration // the longest; the shortest is half of it
	}{
		"asked for a minute":              {asked: time.Minute, waits: []time.Duration{time.Minute + time.Second}},
		"asked for less than the backoff": {asked: time.Millisecond, waits: []time.Duration{500 * time.Millisecond}},
		"asked for a year":                {asked: 8760 * time.Hour, waits: []time.Duration{5*time.Minute + time.Second}},
		"asked for a negative time":       {asked: -time.Hour, waits: []time.Duration{500 * time.Millisecond}},
		"asked for nothing":               {waits: []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 15 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{before: func(n *node) {
				n.receiver.set(always(refuse(codes.Unavailable, 0)))
				if tc.asked != 0 {
					n.receiver.set(nth(1, refuse(codes.Unavailable, tc.asked)))
				}
			}}, func(n *node) {
				n.wait(10 * time.Minute)
				requests, _ := n.receiver.got()
				if len(requests) <= len(tc.waits) {
					n.t.Fatalf("%d requests, want more than %d", len(requests), len(tc.waits))
				}
				for i, longest := range tc.waits {
					shortest := longest / 2
					if longest > 15*time.Second { // the receiver asked for it
						shortest = longest - time.Second
					}
					if waited := requests[i+1].at - requests[i].at; waited < shortest || waited > longest {
						n.t.Errorf("wait %d is %v, want %v to %v", i+1, waited, shortest, longest)
					}
				}
			})
		})
	}
}

// "make faults" runs more.
var randomSeeds = flag.Uint64("otlp.seeds", 6, "number of seeds of TestRandomFaults")

// Random faults and random pods: every promise holds once the receiver accepts again.
func TestRandomFaults(t *testing.T) {
	for seed := range *randomSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			options := rand.New(rand.NewPCG(seed, 1))
			o := nodeOptions{
				history:       20 + options.IntN(400),
				exporterFirst: options.IntN(2) == 0,
			}
			maxBatch := 1 + options.IntN(30)
			o.exporter = otlp.ExporterOptions{}.WithMaxBatch(maxBatch, 1000+options.IntN(20_000))
			synctest.Test(t, func(t *testing.T) {
				withNode(t, protocols[seed%2], o, func(n *node) { n.applyRandomFaults(seed, maxBatch) })
			})
		})
	}
}

func (n *node) applyRandomFaults(seed uint64, maxBatch int) {
	random := rand.New(rand.NewPCG(seed, 3))
	for range 40 {
		n.receiver.set(randomFault(random.Uint64()))
		down := random.IntN(8) == 0
		if down {
			n.receiver.stop()
		}
		n.randomPods(random)
		if down {
			n.receiver.start()
		}
	}
	n.receiver.set(nil)
	n.wait(10 * time.Minute)
	n.requirePromises(maxBatch)
	n.requireMetrics(map[string]float64{"dropped_records_total": 0})
}

// randomFault returns a fault that is another one for each request.
func randomFault(seed uint64) func(request) answer {
	random := rand.New(rand.NewPCG(seed, 2))
	answers := []answer{
		accepts, accepts,
		{keep: true, after: 3 * time.Second},
		{keep: true, after: time.Hour},
		{keep: true, cut: true},
		{cut: true},
		{keep: random.IntN(2) == 0, err: refuse(codes.Unavailable, 0).err},
		refuse(codes.ResourceExhausted, 4*time.Second),
	}
	if random.IntN(2) == 0 { // some time without faults
		return nil
	}
	return func(request) answer { return answers[random.IntN(len(answers))] }
}

// randomPods makes a few changes within a few seconds.
func (n *node) randomPods(random *rand.Rand) {
	for range 1 + random.IntN(10) {
		pod := pleg.PodUID(fmt.Sprint("p", random.IntN(5)))
		words := ""
		for c := range random.IntN(20) {
			words += fmt.Sprintf(" %s-c%d-%d=%s", pod, c, random.IntN(3), []string{"running", "exited", "created"}[random.IntN(3)])
		}
		n.runtime.Set(pod, words)
		n.wait(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
}
