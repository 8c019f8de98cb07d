package httpserver_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
