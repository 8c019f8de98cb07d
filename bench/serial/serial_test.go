package serial_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One inspection delays the others, at most until its deadline. FuzzEvents of
// stage/differ compares the events with those of the pipeline.
func TestInspectsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, timeout = 3 * time.Second, 10 * time.Second
		runtime := plegtest.New()
		p := serial.New(runtime, make(chan pleg.Event, 10), timeout)
		runtime.SetInspectFault(plegtest.Delay(takes))
		runtime.SetPodFault("hung", plegtest.Hang)
		began := time.Now()
		p.Apply(t.Context(), began, []*pleg.Pod{plegtest.Pod("hung", "h=running"), plegtest.Pod("p", "c=running"), plegtest.Pod("q", "c=running")})
		if took := time.Since(began); took != timeout+2*takes {
			t.Errorf("took %v, want %v", took, timeout+2*takes)
		}
		if _, err := p.Status("hung"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cached error %v, want a deadline", err)
		}
	})
}
