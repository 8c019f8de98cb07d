// Package backoff computes the time between two attempts, for every kind of retry.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles from Min to Max with each attempt, and half of it is random.
type Backoff struct {
	Min, Max time.Duration

	now time.Duration // zero means Min
}

// Longest returns the longest time that Next may return now.
func (b *Backoff) Longest() time.Duration { return max(b.now, b.Min) }

// Next returns the time until the next attempt.
func (b *Backoff) Next() time.Duration {
	d := b.Longest()
	b.now = min(2*d, b.Max)
	return d/2 + rand.N(d/2+1)
}

// Reset makes the next time start from Min again.
func (b *Backoff) Reset() { b.now = 0 }

// Wait returns after d, or the cause of ctx when that ends.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
