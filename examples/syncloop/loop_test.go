package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// unhealthyUntil returns a health check that fails until t.
func unhealthyUntil(t time.Time) func() (bool, error) {
	return func() (bool, error) {
		if time.Now().Before(t) {
			return false, errors.New("unhealthy")
		}
		return true, nil
	}
}

// skips records when the loop did nothing.
type skips struct {
	began time.Time
	at    []time.Duration
}

func (s *skips) Sync(*pipeline.PodStatus) {}
func (s *skips) CleanUp(pipeline.Event)   {}
func (s *skips) Skip(error)               { s.at = append(s.at, time.Since(s.began)) }

// TestUnhealthyLoopBacksOff checks that the loop waits 100 ms, 200 ms and so on, and at
// most 5 s.
func TestUnhealthyLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &skips{began: time.Now()}
		l := &loop{healthy: unhealthyUntil(time.Now().Add(16 * time.Second)), events: make(chan pipeline.Event), handler: s, cache: newCache(t)}
		if err := l.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("run ended with %v", err)
		}
		want := []time.Duration{0, 100, 300, 700, 1500, 3100, 6300, 11300}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(s.at, want) {
			t.Errorf("skipped at %v, want %v", s.at, want)
		}
	})
}

func newCache(t *testing.T) *pipeline.Cache {
	t.Helper()
	p, err := pipeline.New(pipeline.Options{Runtime: nothing{}})
	if err != nil {
		t.Fatal(err)
	}
	return p.Cache()
}

// nothing is a runtime without pods.
type nothing struct{ pipeline.Runtime }
