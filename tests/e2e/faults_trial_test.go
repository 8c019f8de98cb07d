//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

const (
	// settleTimeout bounds the time from the end of a fault until all is known.
	settleTimeout = 90 * time.Second
	// quiet is for how long nothing more may come then: some relists, and more
	// than an event takes.
	quiet = 1500 * time.Millisecond
	// early and late are by how much the health may turn sooner and later than it
	// should: lists take time, and the machine may be busy.
	early = 2 * time.Second
	late  = 10 * time.Second
)

// trial is one fault with those who watch it.
type trial struct {
	t         *testing.T
	lab       *lab.Lab
	scene     *scene
	observers []*observer

	injected, lifted time.Time
	// broke is set by a fault that ends the stream of events: from then on all
	// observers poll.
	broke bool
}

// awaitAll returns once every observer knows the ledger's truth.
func (tr *trial) awaitAll(ctx context.Context) {
	tr.t.Helper()
	_, err := tr.settled(ctx, time.Now())
	must(tr.t, err)
}

// settled waits for each observer's events and state to equal the ledger, and
// returns how long after a time each did.
func (tr *trial) settled(ctx context.Context, since time.Time) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, fmt.Errorf("not settled within %v", settleTimeout))
	defer cancel()
	took := make([]time.Duration, len(tr.observers))
	g := new(errgroup.Group)
	for i, o := range tr.observers {
		g.Go(func() error {
			for {
				final, err := tr.differs(ctx, o)
				if err == nil {
					took[i] = time.Since(since)
					return nil
				}
				if final {
					return err
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					return fmt.Errorf("%w: %w", context.Cause(ctx), err)
				}
			}
		})
	}
	return took, g.Wait()
}

// differs says how an observer differs from the ledger, and whether no waiting
// can mend that.
func (tr *trial) differs(ctx context.Context, o *observer) (final bool, err error) {
	pods := make(map[string][]lab.Entry)
	for _, e := range tr.lab.Ledger().All() {
		pods[e.PodUID] = append(pods[e.PodUID], e)
	}
	for uid, entries := range pods {
		events := o.seen.events(pleg.PodUID(uid))
		told, codeless := o.stopped.expected(entries, events)
		events = fillUntold(events, entries, func(id string) bool { return !codeless[id] })
		if diff, early := compare(events, told); diff != "" {
			return !early && o.stopped.to.IsZero(), fmt.Errorf("%s: pod %s: %w: %s", o.seen.observer, uid, errDiffer, diff)
		}
	}
	state, err := o.state(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.seen.observer, err)
	}
	return false, sameState("what "+o.seen.observer+" knows", state, ledgerState(tr.lab))
}

// inject marks the beginning of the fault. All is known then.
func (tr *trial) inject(ctx context.Context) {
	tr.t.Helper()
	tr.awaitAll(ctx)
	tr.injected = time.Now()
}

// keeps demands that no observer has forgotten or invented anything while the
// runtime could not be asked: what was true at the injection still stands.
func (tr *trial) keeps(ctx context.Context, want map[string]string) {
	tr.t.Helper()
	for _, o := range tr.observers {
		state, err := o.state(ctx)
		if err == nil {
			err = sameState("during the fault what "+o.seen.observer+" knows", state, want)
		}
		if err != nil {
			tr.t.Error(err)
		}
	}
}

// lift marks the end of the fault.
func (tr *trial) lift() { tr.lifted = time.Now() }

// end waits until all is known, checks that nothing more comes, that the runtime
// agrees, and the health, and prints the figures. If listsFail, no list could
// succeed during the fault.
func (tr *trial) end(ctx context.Context, listsFail bool) {
	t := tr.t
	t.Helper()
	complete := time.Since(tr.lifted)
	took, err := tr.settled(ctx, tr.lifted)
	must(t, err)
	runtime, err := runtimeState(ctx, tr.lab)
	must(t, err)
	if err := sameState("the runtime", runtime, ledgerState(tr.lab)); err != nil {
		t.Error(err)
	}
	must(t, sleepUntil(ctx, time.Now().Add(quiet)))
	lasted := tr.lifted.Sub(tr.injected)
	for i, o := range tr.observers {
		if _, err := tr.differs(ctx, o); err != nil {
			t.Errorf("after %v of quiet: %v", quiet, err)
		}
		ill := tr.checkHealth(ctx, o, listsFail, lasted)
		missed := "-"
		if o.missed != nil {
			missed = fmt.Sprint(o.missed())
		}
		t.Logf("FIGURE | %s | %s | fault %.1f s | unhealthy after %s | truth complete %.2f s, known %.2f s after the lift | missed events %s",
			tr.row(), o.seen.observer, lasted.Seconds(), ill, complete.Seconds(), took[i].Seconds(), missed)
	}
}

func (tr *trial) row() string {
	_, row, _ := strings.Cut(tr.t.Name(), "/")
	return strings.ReplaceAll(row, "_", " ")
}

// checkHealth demands that an observer was unhealthy if and only if no list
// succeeded for longer than its threshold, and that it is healthy now. It returns
// how long after the injection that began.
func (tr *trial) checkHealth(ctx context.Context, o *observer, listsFail bool, lasted time.Duration) string {
	t := tr.t
	t.Helper()
	ill := o.verdicts.next(tr.injected, false)
	threshold, period := o.threshold, o.period
	if tr.broke {
		threshold, period = o.polling, relistPeriod
	}
	switch {
	case threshold == 0:
	case listsFail && lasted > threshold+late && (ill < threshold-period-early || ill > threshold+late):
		t.Errorf("%s: unhealthy %v after the injection, want about %v", o.seen.observer, ill, threshold)
	case (!listsFail || lasted < threshold-period-early) && ill >= 0:
		t.Errorf("%s: unhealthy %v after the injection, want never", o.seen.observer, ill)
	}
	if err := eventually(ctx, func() bool { ok, err := o.healthy(ctx); return ok && err == nil }); err != nil {
		t.Errorf("%s: it is not healthy again: %v", o.seen.observer, err)
	}
	if ill < 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", ill.Seconds())
}
