package inspector_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

// lines is a log without times, one line for each record.
func lines(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func callOf(uid pleg.PodUID) *pleg.Call {
	return &pleg.Call{Method: "ContainerStatus", Container: "c", PodUID: uid}
}

// TestOverdueInspectionsAreVisible requires that a hung inspection is published and
// logged once with its pod and call as soon as it is older than HungAfter.
func TestOverdueInspectionsAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFixture(t, newHangingRuntime().PodStatus, inspector.Options{
			Inspectors: 4, HungAfter: hungAfter, CallOf: callOf, Logger: lines(&log),
		})
		began := time.Now()
		f.inspect <- one("hung-0")
		time.Sleep(hungAfter / 2)
		// It ends after it has begun later: the other one is hung, not slow.
		f.do(one("quick"))
		time.Sleep(hungAfter/2 - time.Millisecond)
		synctest.Wait()
		if overdue := f.inspector.Overdue(); len(overdue) != 0 {
			t.Errorf("overdue %+v before HungAfter, want none", overdue)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		overdue := f.inspector.Overdue()
		if len(overdue) != 1 || overdue[0].UID != "hung-0" || overdue[0].Name == "" || !overdue[0].Started.Equal(began) || !overdue[0].Hung {
			t.Errorf("overdue %+v, want pod hung-0, hung since %v", overdue, began)
		}
		if inFlight := f.inspector.InFlight(); inFlight != 1 {
			t.Errorf("%d inspections in flight, want 1", inFlight)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if overdue := f.inspector.Overdue(); len(overdue) != 0 {
			t.Errorf("overdue %+v after it has ended, want none", overdue)
		}
		var ages []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "podUID=hung-0") && strings.Contains(line, `call="ContainerStatus of c"`) {
				_, age, _ := strings.Cut(line, " age=")
				ages = append(ages, strings.Fields(age)[0])
			}
		}
		if got := strings.Join(ages, " "); got != "1s" {
			t.Errorf("logged at the ages %q, want 1s; log:\n%s", got, log.String())
		}
	})
}

// A retry that hangs is not logged again: the differ has logged the pod.
func TestHungRetryIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFixture(t, newHangingRuntime().PodStatus, inspector.Options{Inspectors: 4, HungAfter: hungAfter, Logger: lines(&log)})
		again := one("hung-0")
		again.Retry = true
		f.retry <- again
		time.Sleep(hungAfter / 2)
		f.do(one("quick"))
		time.Sleep(hungAfter)
		synctest.Wait()
		if strings.Contains(log.String(), "inspection hangs") {
			t.Errorf("logged:\n%s", &log)
		}
	})
}
