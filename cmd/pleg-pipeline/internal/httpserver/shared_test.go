package httpserver_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
)

// Many clients that ask for all pods cost little more than one, and get no answer that was
// begun before they asked.
func TestAnswersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		made := 0 // by one goroutine at a time, or the race detector tells
		h := httpserver.NewShared(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			made++
			version := int(time.Since(began).Seconds())
			time.Sleep(2 * time.Second)
			w.WriteHeader(200 + version)
		}))
		var asking sync.WaitGroup
		asking.Go(func() { ask(t, h, "GET", "/all") })
		synctest.Wait() // it is made while the others ask
		for second := range 3 {
			for n := range 20 {
				asking.Go(func() {
					if version, _ := ask(t, h, "GET", "/all"); version < 200+second {
						t.Errorf("an answer of second %d for a question of second %d", version-200, second)
					}
				})
				if n%10 == 0 {
					asking.Go(func() { ask(t, h, "GET", "/some") })
				}
			}
			time.Sleep(time.Second)
		}
		asking.Wait()
		// One of each question at first, and one for all who asked meanwhile.
		if made > 4 {
			t.Errorf("%d answers were made, want at most 4", made)
		}
	})
}

// More clients ask for metrics than may be answered at a time. Each gets them, and few
// encodings are made.
func TestMetricsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 100
		gathered := 0 // by one goroutine at a time, or the race detector tells
		h := httpserver.NewMetrics(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			gathered++
			time.Sleep(100 * time.Millisecond)
			return nil, nil
		}))
		var asking sync.WaitGroup
		for range clients {
			asking.Go(func() {
				if code, text := ask(t, h, "GET", "/metrics"); code != http.StatusOK {
					t.Errorf("GET /metrics = %d %q, want 200", code, text)
				}
			})
		}
		asking.Wait()
		if gathered > 10 {
			t.Errorf("%d encodings for %d clients", gathered, clients)
		}
	})
}

// A client that asks without end takes a fifth of the time.
func TestAnswersRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httpserver.NewShared(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		began := time.Now()
		for range 5 {
			ask(t, h, "GET", "/")
		}
		if took := time.Since(began); took < 21*time.Second {
			t.Errorf("five answers of a second took %v, want 21s", took)
		}
	})
}
