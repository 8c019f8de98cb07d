package pipeline_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// logged keeps what is logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns the number of lines with these words.
func (l *logged) count(words string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

func (l *logged) want(t *testing.T, count int, words string) {
	t.Helper()
	if got := l.count(words); got != count {
		t.Errorf("%d lines of the log say %q, want %d", got, words, count)
	}
}

// foundAfter has a pod's container exit and returns how long the cache took to
// know.
func (h *hinted) foundAfter(pod simruntime.Pod) time.Duration {
	h.t.Helper()
	id := pod.Containers[0].ID
	h.update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, 7, simruntime.ReasonError) })
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		st, err := h.pipe.Cache().Get(pipeline.PodUID(pod.UID))
		if c := st.Container(pleg.ContainerID(id)); err == nil && c != nil && c.State == pleg.StateExited {
			return time.Since(began)
		}
		if time.Since(began) > time.Hour {
			h.t.Fatalf("the end of %s was not found in an hour", id)
		}
	}
}

// A stream may be open and silent while the runtime's state changes. The first
// list finds out; from then on the stream is worth nothing until it has proven
// itself.
func TestSilentStreamIsNotReliedOn(t *testing.T) {
	const soon = 1100 * time.Millisecond // the relist period and an inspection
	synctest.Test(t, func(t *testing.T) {
		var log logged
		h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{Logger: log.logger()})
		pods := h.populate(simruntime.Population{Pods: 8, Containers: 1})
		silent := func(yes bool) {
			loss := 0.
			if yes {
				loss = 1
			}
			if err := h.rt.SetEventFaults(simruntime.EventFaults{Loss: loss}); err != nil {
				t.Fatal(err)
			}
		}
		lists := func() int64 { return h.rt.Stats().RPCs["StreamContainers"].Calls }
		doubted := func(want float64) {
			t.Helper()
			if got := h.metric("pleg_event_stream_doubted"); got != want || h.metric("pleg_event_stream_up") != 1 {
				t.Errorf("doubted: %v, want %v, and the stream up", got, want)
			}
		}
		time.Sleep(3 * time.Second)
		if took := h.foundAfter(pods[0]); took > 20*time.Millisecond {
			t.Errorf("with events it took %v", took)
		}

		silent(true)
		if took := h.foundAfter(pods[1]); took < soon || took > hintedPeriod {
			t.Errorf("the first change took %v: no list of the period found it", took)
		}
		time.Sleep(10 * time.Second)
		doubted(1)
		if n := h.metric("pleg_missed_events_total"); n != 1 {
			t.Errorf("%v events missed, want 1", n)
		}
		for _, idle := range []time.Duration{0, 10 * time.Minute} {
			time.Sleep(idle)
			if took := h.foundAfter(pods[2]); took > soon {
				t.Errorf("%v later a change took %v, want the relist period", idle, took)
			}
			pods = pods[1:]
		}
		doubted(1)

		time.Sleep(10 * time.Second) // until that is missed
		silent(false)
		if took := h.foundAfter(pods[2]); took > 20*time.Millisecond {
			t.Errorf("an event of a doubted stream took %v", took)
		}
		time.Sleep(2 * time.Minute)
		doubted(0)
		before := lists()
		time.Sleep(10 * hintedPeriod)
		if n := lists() - before; n > 11 {
			t.Errorf("%d lists in 10 periods of a stream that is relied on again", n)
		}
		log.want(t, 1, "event stream is missing changes")
		log.want(t, 1, "announces all changes again")

		silent(true)
		h.foundAfter(pods[3])
		time.Sleep(10 * time.Second)
		doubted(1)
		log.want(t, 2, "event stream is missing changes")
		h.wantTruth()
		h.ledger.check(t, h.events(), false)
	})
}
