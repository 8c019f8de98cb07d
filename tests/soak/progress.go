package soak

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// progress writes a line every progressPeriod until ctx ends.
func (s *soak) progress(ctx context.Context) {
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintln(s.Out, s.line(ctx))
		case <-ctx.Done():
			return
		}
	}
}

func (s *soak) line(ctx context.Context) string {
	_, actions := s.actionCounts()
	_, rests, _ := s.phase.now()
	var b strings.Builder
	fmt.Fprintf(&b, "soak %s: %v of %v, %d actions, %d rests, %d problems",
		s.node.Name(), time.Since(s.began).Round(time.Second), s.Duration, actions, rests, s.failures())
	for _, a := range s.agents {
		now, err := s.measure(ctx, a)
		if err != nil {
			fmt.Fprintf(&b, "; %s: %v", a.mode, err)
			continue
		}
		fmt.Fprintf(&b, "; %s: %.0f events, %.0f discarded, heap %.1f MiB, %.0f goroutines, %.0f fds, RSS %.0f MiB, CPU %.1f s",
			a.mode, now.Events, now.Discarded, mib(now.HeapBytes), now.Goroutines, now.FDs, mib(now.RSSBytes), now.CPUSeconds)
	}
	return b.String()
}
