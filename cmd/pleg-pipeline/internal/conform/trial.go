package conform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// trial is to a promise what testing.T is to a test. Its methods end it if a call fails, so that
// a promise is tried by what is written there, and by nothing else.
type trial struct {
	*node
	ctx context.Context //nolint:containedctx // of one trial, as a testing.T has that of one test
}

// result is what a trial returns, or ends with.
type result struct {
	verdict  Verdict
	evidence string
}

func (r result) Error() string { return r.evidence }

// judge returns the verdict with its evidence.
func judge(kept bool, format string, args ...any) result {
	r := result{Kept, fmt.Sprintf(format, args...)}
	if !kept {
		r.verdict = Broken
	}
	return r
}

// check ends a trial if there is an error: the promise is broken then, unless the error is a result.
func check(err error) {
	if r := (result{}); errors.As(err, &r) {
		panic(r)
	}
	if err != nil {
		panic(result{Broken, err.Error()})
	}
}

// must returns the answer to a call, or ends the trial.
func must[T any](answer T, err error) T {
	check(err)
	return answer
}

// attempt calls a part of a trial and returns the result that it ended with.
func attempt(part func()) (ended error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case result:
			ended = r
		default:
			panic(r)
		}
	}()
	part()
	return nil
}

func (n *node) try(ctx context.Context, p promise) (r result) {
	if err := attempt(func() { r = p.try(&trial{n, ctx}) }); err != nil {
		errors.As(err, &r)
	}
	return r
}

// each calls a part for each number below n, some at once. If one ends, all do.
func (t *trial) each(n, atOnce int, part func(t *trial, i int)) {
	g, ctx := errgroup.WithContext(t.ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return attempt(func() { part(&trial{t.node, ctx}, i) }) })
	}
	check(g.Wait())
}

func (t *trial) sleep(d time.Duration) { check(sleep(t.ctx, d)) }

// until calls done again and again until it returns true. It is false if ctx ends or the time is
// over.
func until(ctx context.Context, within, every time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !done() {
		if sleep(ctx, every) != nil {
			return false
		}
	}
	return true
}

// sleep returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
