package otlp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
)

// refuse returns an answer with a status, and the wait that it asks for if there is one.
func refuse(code codes.Code, wait time.Duration) answer {
	s := status.New(code, "no")
	if wait != 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	return answer{err: s.Err()}
}

// names returns the events of records in short.
func (r *receiver) names() (names []string) {
	_, records := r.got()
	for _, record := range records {
		names = append(names, fmt.Sprint(record.GetEventName(), " ", attribute(record, "pleg.seq")))
	}
	return names
}

// Whether the exporter comes before or after the first list, it exports what that shows.
func TestStartIsAGapAndThePresentState(t *testing.T) {
	pods := func(n *node) { n.runtime.Set("a", "c=running d=exited") }
	for name, tc := range map[string]struct {
		o    nodeOptions
		want []string
	}{
		"an empty node":         {nodeOptions{}, []string{"pleg.gap 0", "pleg.synced 0"}},
		"before the first list": {nodeOptions{before: pods, exporterFirst: true}, []string{"pleg.gap 0", "pleg.container.started 1", "pleg.container.died 2", "pleg.synced 2"}},
		"after the first list":  {nodeOptions{before: pods}, []string{"pleg.gap 2", "pleg.container.started 1", "pleg.container.died 2", "pleg.synced 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.o, func(n *node) {
				n.wait(time.Second)
				if got := n.receiver.names(); !slices.Equal(got, tc.want) {
					t.Fatalf("got %v, want %v", got, tc.want)
				}
				if _, records := n.receiver.got(); len(tc.want) > 2 && attribute(records[1], "pleg.replayed") != true {
					t.Errorf("the first event is not replayed: %v", records[1])
				}
				n.runtime.Set("b", "c=running /s=running")
				n.wait(3 * time.Second)
				if got := len(n.receiver.names()); got != len(tc.want)+3 {
					t.Errorf("got %v, want three more events", n.receiver.names())
				}
				n.requirePromises()
				if got := n.metric("pleg_otlp_exported_records_total"); got != float64(len(tc.want)+3) {
					t.Errorf("%v exported records, want %d", got, len(tc.want)+3)
				}
				if got := n.metric("pleg_otlp_exported_gaps_total"); got != 1 {
					t.Errorf("%v gaps, want 1", got)
				}
			})
		})
	}
}

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
			inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{MaxBatch: 10}}, func(n *node) {
				n.churn("a", 5)
				n.receiver.set(always(down))
				n.churn("b", 300)
				if got := n.metric("pleg_otlp_waiting_age_seconds"); got < 250 {
					t.Errorf("the oldest event has waited for %v s, want 300 or a little less", got)
				}
				n.receiver.set(nil)
				n.wait(time.Minute)
				n.requirePromises()
				if got := n.metric("pleg_otlp_waiting_age_seconds"); got != 0 {
					t.Errorf("an event waits for %v s, want none", got)
				}
				if n.metric("pleg_otlp_retries_total") == 0 || n.metric("pleg_otlp_dropped_records_total") != 0 {
					t.Error("the metrics do not show retries, or they show drops")
				}
				n.requireBatches(10)
			})
		})
	}
}

// requireBatches fails if a request has more records, or if two were in flight at once.
func (n *node) requireBatches(bound int) {
	n.t.Helper()
	requests, _ := n.receiver.got()
	for i, r := range requests {
		if got := len(r.records()); got == 0 || got > bound {
			n.t.Errorf("request %d has %d records, want 1 to %d", i, got, bound)
		}
	}
}

func TestReceiverRestarts(t *testing.T) {
	inBubble(t, nodeOptions{}, func(n *node) {
		for range 5 {
			n.churn("a", 10)
			n.receiver.stop()
			n.churn("b", 10)
			n.receiver.start()
			n.churn("c", 10)
		}
		n.wait(2 * time.Minute)
		n.requirePromises()
	})
}

func TestHistoryTooShortIsAGap(t *testing.T) {
	inBubble(t, nodeOptions{history: 20}, func(n *node) {
		n.churn("a", 5)
		n.receiver.set(always(refuse(codes.Unavailable, 0)))
		n.churn("a", 100)
		n.receiver.set(nil)
		n.wait(time.Minute)
		n.requirePromises()
		_, records := n.receiver.got()
		var missed, before int64
		for _, r := range records {
			if attribute(r, "pleg.reason") == "HistoryTooShort" {
				missed = attribute(r, "pleg.missed").(int64)
				break
			}
			before = max(before, attribute(r, "pleg.seq").(int64))
		}
		last := attribute(records[len(records)-1], "pleg.seq").(int64)
		if want := last - before - 20; missed != want {
			t.Errorf("the Gap says %d missed events, want %d", missed, want)
		}
		if got := records[len(records)-1].GetEventName(); got != "pleg.synced" {
			t.Errorf("the last record is %s, want pleg.synced", got)
		}
	})
}

// A receiver that is slower than the events, which come faster than the buffers hold.
func TestSlowReceiverLosesNothing(t *testing.T) {
	inBubble(t, nodeOptions{history: 100_000}, func(n *node) {
		n.receiver.set(always(answer{keep: true, after: 9 * time.Second}))
		for i := range 20 {
			words := "/s=running"
			for c := range 300 {
				words += fmt.Sprintf(" c%d-%d=running", c, i)
			}
			n.runtime.Set("a", words)
			n.wait(time.Second)
		}
		n.wait(time.Hour)
		n.requirePromises()
		n.requireBatches(otlp.DefaultMaxBatch)
		if n.metric("pleg_otlp_retries_total") == 0 {
			t.Error("the receiver was not slower than the events")
		}
	})
}

func TestPartialSuccessIsNotRepeated(t *testing.T) {
	inBubble(t, nodeOptions{}, func(n *node) {
		n.wait(time.Second)
		before, _ := n.receiver.got()
		exported := n.metric("pleg_otlp_exported_records_total")
		n.receiver.set(always(answer{keep: true, partial: &collogsv1.ExportLogsPartialSuccess{RejectedLogRecords: 2, ErrorMessage: "too old"}}))
		n.runtime.Set("a", "c1=running c2=running c3=running")
		n.wait(time.Minute)
		requests, _ := n.receiver.got()
		var refused, accepted float64
		for _, r := range requests[len(before):] {
			refused += min(2, float64(len(r.records())))
			accepted += max(0, float64(len(r.records()))-2)
		}
		if got := n.metric("pleg_otlp_refused_records_total"); got != refused || refused == 0 {
			t.Errorf("%v refused records, want %v", got, refused)
		}
		if got := n.metric("pleg_otlp_exported_records_total") - exported; got != accepted {
			t.Errorf("%v exported records, want %v", got, accepted)
		}
		n.requirePromises() // the receiver has each record once
		if got := len(n.receiver.names()); got != 5 {
			t.Errorf("%d records, want 5: %v", got, n.receiver.names())
		}
	})
}

// What the receiver rejects for good is counted and not sent again. What follows is.
func TestRejectedRequestIsDropped(t *testing.T) {
	inBubble(t, nodeOptions{}, func(n *node) {
		n.churn("a", 3)
		n.receiver.set(always(refuse(codes.InvalidArgument, 0)))
		n.runtime.Set("b", "c1=running")
		n.wait(2 * time.Second)
		n.receiver.set(nil)
		n.runtime.Set("c", "c1=running")
		n.wait(time.Minute)
		if got := n.metric("pleg_otlp_dropped_records_total"); got != 1 {
			t.Errorf("%v dropped records, want 1", got)
		}
		if got := n.metric("pleg_otlp_retries_total"); got != 0 {
			t.Errorf("%v retries, want none", got)
		}
		_, records := n.receiver.got()
		last, before := records[len(records)-1], records[len(records)-2]
		if attribute(last, "k8s.pod.uid") != "c" || attribute(last, "pleg.seq") != attribute(before, "pleg.seq").(int64)+2 {
			t.Errorf("the last records are %v and %v, want a hole of one number before the event of pod c", before, last)
		}
	})
}

// A replay of which a request is rejected goes on. One that is interrupted begins again, with
// its Gap.
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
			inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{MaxBatch: 2}, before: func(n *node) {
				n.runtime.Set("a", "c1=running c2=running c3=running c4=running")
				n.receiver.set(nth(tc.fails, refuse(tc.code, 0)))
			}}, func(n *node) {
				n.wait(time.Minute)
				names, gaps := n.receiver.names(), 0
				for _, name := range names {
					if strings.HasPrefix(name, "pleg.gap") {
						gaps++
					}
				}
				if gaps != tc.gaps || len(names) == 0 || names[len(names)-1] != "pleg.synced 4" {
					t.Errorf("got %v, want %d Gaps and Synced at the end", names, tc.gaps)
				}
				if tc.gaps > 0 {
					n.requirePromises()
				}
			})
		})
	}
}

// nth returns a fault of one request, the n-th.
func nth(n int, a answer) func(request) answer {
	number := 0
	return func(request) answer {
		if number++; number == n {
			return a
		}
		return accepts
	}
}

func TestReceiverSaysWhenToRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		wait, want, atMost time.Duration
	}{
		"a minute":              {wait: time.Minute, want: time.Minute, atMost: time.Minute + time.Second},
		"less than the backoff": {wait: time.Millisecond, want: 250 * time.Millisecond, atMost: 500 * time.Millisecond},
		"a year":                {wait: 8760 * time.Hour, want: 5 * time.Minute, atMost: 5*time.Minute + time.Second},
		"negative":              {wait: -time.Hour, want: 250 * time.Millisecond, atMost: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nodeOptions{before: func(n *node) {
				n.receiver.set(nth(1, refuse(codes.Unavailable, tc.wait)))
			}}, func(n *node) {
				n.wait(10 * time.Minute)
				requests, _ := n.receiver.got()
				if len(requests) < 2 {
					t.Fatalf("%d requests, want a second one", len(requests))
				}
				if waited := requests[1].at - requests[0].at; waited < tc.want || waited > tc.atMost {
					t.Errorf("the second request came after %v, want %v to %v", waited, tc.want, tc.atMost)
				}
			})
		})
	}
}

func TestRetriesBackOff(t *testing.T) {
	inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{MinBackoff: time.Second, MaxBackoff: 8 * time.Second}, before: func(n *node) {
		n.receiver.set(always(refuse(codes.Unavailable, 0)))
	}}, func(n *node) {
		n.wait(10 * time.Minute)
		requests, _ := n.receiver.got()
		for i := range requests[1:] {
			longest := min(8*time.Second, time.Second<<min(i, 10))
			if waited := requests[i+1].at - requests[i].at; waited < longest/2 || waited > longest {
				t.Errorf("wait %d is %v, want %v to %v", i+1, waited, longest/2, longest)
			}
		}
	})
}

func TestRequestsHaveABoundInBytes(t *testing.T) {
	const bound = 4000
	inBubble(t, nodeOptions{exporter: otlp.ExporterOptions{MaxBatchBytes: bound}}, func(n *node) {
		n.receiver.set(always(answer{keep: true, after: 9 * time.Second}))
		n.churn("a", 100)
		n.wait(time.Hour)
		n.requirePromises()
		requests, _ := n.receiver.got()
		largest := 0
		for _, r := range requests {
			size := proto.Size(r.GetResourceLogs()[0].GetScopeLogs()[0])
			largest = max(largest, size)
			if size > bound+200 && len(r.records()) > 1 {
				t.Errorf("a request has %d bytes of %d records, want at most %d", size, len(r.records()), bound)
			}
		}
		if largest < bound/2 {
			t.Errorf("the largest request has %d bytes: the bound was not reached", largest)
		}
	})
}
