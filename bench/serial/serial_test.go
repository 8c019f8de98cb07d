package serial_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One inspection delays the others and the next relist, at most until its deadline. The rest
// is tested by tests/model, which requires that the pipeline does the same.
func TestRunInspectsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		events := make(chan pleg.Event, 10)
		runtime := plegtest.New()
		p := serial.New(runtime, events, timeout)
		began := time.Now()
		var calls []time.Duration
		runtime.SetInspectFault(func(context.Context) error {
			calls = append(calls, time.Since(began))
			time.Sleep(3 * time.Second)
			return nil
		})
		runtime.SetPodFault("hung", plegtest.Hang)
		runtime.Set("hung", "h=running")
		runtime.Set("p", "c=running")
		runtime.Set("q", "c=running")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx, time.Second) }()
		time.Sleep(timeout + 6*time.Second) // all three, in any order
		synctest.Wait()
		for i := 1; i < len(calls); i++ {
			if took := calls[i] - calls[i-1]; took != 3*time.Second && took != timeout {
				t.Errorf("calls at %v, want one after the other", calls)
			}
		}
		if _, err := p.Status("hung"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cached error %v, want a deadline", err)
		}
		runtime.SetPodFault("hung", nil)
		runtime.Set("hung", "h=exited")
		time.Sleep(time.Second + 3*time.Second)
		synctest.Wait()
		if want := timeout + 7*time.Second; len(calls) != 4 || calls[3] != want {
			t.Errorf("calls at %v, want the last at %v, a period after the relist", calls, want)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		var got []string
		for range len(events) {
			got = append(got, plegtest.Words(<-events))
		}
		if slices.Sort(got); !slices.Equal(got, []string{"Died(h)", "Started(c)", "Started(c)"}) {
			t.Errorf("events %q", got)
		}
	})
}
