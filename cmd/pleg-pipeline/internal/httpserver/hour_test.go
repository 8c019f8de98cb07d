package httpserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestHourHasTheWorst has an inspection and then lists hang for less than ten seconds each,
// and waits for more than an hour.
func TestHourHasTheWorst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.Set("shop/cart", "c=running /s=running")
		runtime.Set("shop/web", "c=running /s=running")
		registry := prometheus.NewRegistry()
		pipe, _ := newPipe(t, runtime, pipeline.Options{Registerer: registry})
		o := options(pipe)
		o.Gatherer = registry
		o.Hour = httpserver.NewHour(pipe, o.Gatherer)
		kit.Run(t, func(ctx context.Context) error { return o.Hour.Run(ctx) })
		h := httpserver.Handler(o)
		hour := func() (points struct {
			PeriodSeconds float64
			Until         time.Time
			ListSeconds   []float64
			Hung          []int
			Events        []uint64
		},
		) {
			if code, text := ask(t, h, http.MethodGet, "/hour"); code != http.StatusOK || json.Unmarshal([]byte(text), &points) != nil {
				t.Fatalf("/hour = %d %q", code, text)
			}
			return points
		}
		time.Sleep(20500 * time.Millisecond)
		runtime.SetListFault(plegtest.Delay(5 * time.Second))
		time.Sleep(2 * time.Second)
		runtime.SetListFault(nil)
		time.Sleep(10 * time.Second)
		runtime.SetPodFault("shop/cart", plegtest.Delay(5*time.Second))
		runtime.Set("shop/cart", "c=exited /s=running")
		time.Sleep(2 * time.Second)
		runtime.Set("shop/web", "c=exited /s=running") // its inspection overtakes
		runtime.SetPodFault("shop/cart", nil)
		time.Sleep(6 * time.Second)
		got := hour()
		if len(got.ListSeconds) != 4 || len(got.Hung) != 4 || len(got.Events) != 4 || got.PeriodSeconds != 10 || time.Since(got.Until) > 10*time.Second {
			t.Fatalf("/hour = %+v, want four points of ten seconds", got)
		}
		if list := got.ListSeconds; list[1] > 0.1 || list[2] < 4 || list[3] > 0.1 {
			t.Errorf("lists took %v seconds, want 5 in the third point alone", list)
		}
		if hung, events := got.Hung, got.Events; hung[2] != 0 || hung[3] != 1 || events[1] != 0 || events[3] != 2 {
			t.Errorf("hung = %v, events = %v, want one pod and two events in the fourth point", hung, events)
		}
		time.Sleep(time.Hour)
		if got := hour(); len(got.ListSeconds) != 360 || got.ListSeconds[0] > 0.1 {
			t.Errorf("after an hour %d points, the first %v, want 360 without the list that hung", len(got.ListSeconds), got.ListSeconds[0])
		}
	})
}
