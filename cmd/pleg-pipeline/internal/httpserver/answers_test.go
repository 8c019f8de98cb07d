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
		get := httpserver.NewAnswers()
		began := time.Now()
		made := 0 // by one goroutine at a time, or the race detector tells
		body := func() []byte {
			made++
			version := byte(time.Since(began).Seconds())
			time.Sleep(2 * time.Second)
			return []byte{version}
		}
		var asking sync.WaitGroup
		for second := range byte(3) {
			for n := range 20 {
				asking.Go(func() {
					if got := get("all", body); got[0] < second {
						t.Errorf("an answer of second %d for a question of second %d", got[0], second)
					}
				})
				if n%10 == 0 {
					asking.Go(func() { get("some", body) })
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
		get := httpserver.NewAnswers()
		began := time.Now()
		for range 5 {
			get("all", func() []byte {
				time.Sleep(time.Second)
				return nil
			})
		}
		if took := time.Since(began); took < 21*time.Second {
			t.Errorf("five answers of a second took %v, want 21s", took)
		}
	})
}
