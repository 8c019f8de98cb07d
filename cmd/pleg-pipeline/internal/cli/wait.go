package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// patience is the time that a command waits before it says why, and between two looks.
	patience = time.Second
	// silentAfter is how long a daemon or a server may send nothing and give no reason.
	silentAfter = 10 * time.Second
)

// statusSource returns the status of a pipeline; a cluster returns none, and its time is zero.
type statusSource interface {
	Status(ctx context.Context) (pleg.Status, error)
}

// wait is one wait for an answer that a daemon may not know yet. It names the runtime's problem, which
// is the usual cause.
type wait struct {
	from   statusSource
	server string // the subject of "is silent"; if empty, the caller sets a deadline
	out    console

	cancel context.CancelFunc
	ended  chan struct{}
	why    string // the last reason that was printed; to be read after end
}

func startWait(ctx context.Context, out console, from statusSource, server string) *wait {
	ctx, cancel := context.WithCancel(ctx)
	w := &wait{from: from, server: server, out: out, cancel: cancel, ended: make(chan struct{})}
	go w.run(ctx)
	return w
}

func (w *wait) run(ctx context.Context) {
	defer close(w.ended)
	for began := time.Now(); ; {
		if backoff.Wait(ctx, patience) != nil {
			return
		}
		why, trouble := whyWaiting(ctx, w.from)
		if !trouble && time.Since(began) < 2*patience { // a busy node needs no notice
			continue
		}
		if w.server != "" && why == "" && w.why == "" && time.Since(began) >= silentAfter {
			why = fmt.Sprintf("waiting for %s: it has sent nothing for %v", w.server, silentAfter)
		}
		if why != "" && why != w.why {
			w.why = why
			w.out.sayNow(ctx, "%s", why)
		}
	}
}

// end ends the wait. It may be called twice.
func (w *wait) end() {
	w.cancel()
	<-w.ended
}

// whyWaiting returns why a daemon cannot answer yet, and whether the runtime is the cause; "" if it
// names no reason, or does not answer.
func whyWaiting(ctx context.Context, from statusSource) (why string, trouble bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := from.Status(ctx)
	if err != nil || now.At.IsZero() {
		return "", false
	}
	v := verdict.Of(now)
	why, trouble = "waiting", v.Severity != verdict.OK
	switch {
	case now.Relist.Success.IsZero():
		why = "waiting for the first list of pods"
	case now.Waiting > 0:
		why = fmt.Sprintf("waiting for the inspection of %d of %d pods", now.Waiting, max(now.Waiting, now.Relist.Pods))
	case !trouble:
		return "", false
	}
	if trouble {
		why += ": " + view.Printable(v.Lasting())
	}
	return why, trouble
}

// errKnown ends the wait for the state of a daemon.
var errKnown = errors.New("all pods are known except those that hang")

// awaitState waits until a daemon knows all pods except those that hang, which the user
// wants to see at once.
func awaitState(ctx context.Context, from daemonSource) error {
	group, waiting := errgroup.WithContext(ctx)
	group.Go(func() error { return cmp.Or(fromDaemon(waiting, from.client.WaitSynced(waiting)), errKnown) })
	group.Go(func() error { return awaitOnlyHung(waiting, from) })
	if err := group.Wait(); !errors.Is(err, errKnown) {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

const hungPeriod = 500 * time.Millisecond

// awaitOnlyHung blocks until each pod that is not known yet hangs, or until ctx ends.
func awaitOnlyHung(ctx context.Context, from daemonSource) error {
	for {
		if err := backoff.Wait(ctx, hungPeriod); err != nil {
			return err
		}
		if now, err := from.Status(ctx); err != nil || onlyHung(now) {
			return cmp.Or(err, errKnown)
		}
	}
}

// onlyHung reports whether pods wait for their inspection and all of them hang.
func onlyHung(s pleg.Status) bool {
	_, hung := view.CountHung(s)
	return s.Waiting > 0 && s.Waiting <= hung
}
