package border

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// grace is how long a call may run after its context has ended. A process with a limit of
	// CPU may not run for some tenths of a second.
	grace = time.Second
	// slice is a quarter of the period in which the kernel gives a process its limit of CPU.
	slice = 25 * time.Millisecond
	// maxAbandoned bounds the abandoned calls about single pods.
	maxAbandoned = 256
)

// subject is a method, and the pod that the call is about; empty if it is about all pods.
type subject struct {
	method string
	uid    pleg.PodUID
}

func (s subject) String() string {
	if s.uid == "" {
		return s.method
	}
	return fmt.Sprintf("%s of pod %s", s.method, s.uid)
}

// inFlight is a call that has not returned.
type inFlight struct {
	began    time.Time
	returned chan struct{} // closed once it has returned
	// abandoned is set once nobody waits for it.
	abandoned bool
}

// calls are the calls in flight, at most one of each subject.
type calls struct {
	log *slog.Logger

	mu        sync.Mutex
	inFlight  map[subject]*inFlight
	abandoned int
}

// begin adds a call. If it may not begin, it returns the abandoned call before it, or nil if too
// many are abandoned.
func (c *calls) begin(of subject) (call, before *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.inFlight[of]; before != nil || of.uid != "" && c.abandoned >= maxAbandoned {
		return nil, before
	}
	call = &inFlight{began: time.Now(), returned: make(chan struct{})}
	c.inFlight[of] = call
	return call, nil
}

// abandon notes that nobody waits for a call any more.
func (c *calls) abandon(of subject, call *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight[of] != call || call.abandoned {
		return // the call has just returned, or another caller waited for it
	}
	call.abandoned = true
	c.abandoned++
	c.log.Warn("runtime call ignores its context, abandoned", "method", of.method, "podUID", of.uid, "age", time.Since(call.began))
}

// isAbandoned reports whether nobody waits for a call any more.
func (c *calls) isAbandoned(call *inFlight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.abandoned
}

// end notes that a call has returned.
func (c *calls) end(of subject, call *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, of)
	close(call.returned)
	if call.abandoned {
		c.abandoned--
	}
}

// Abandoned returns an error that names the calls that keep running although their context has
// ended; nil if there are none.
func (r *Runtime) Abandoned() error {
	const named = 3
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	var names []string
	for of, c := range r.calls.inFlight {
		if c.abandoned {
			names = append(names, fmt.Sprintf("%v (%v)", of, time.Since(c.began).Round(time.Second)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	if more := len(names) - named; more > 0 {
		names = append(names[:named], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("calls of the runtime ignore their context and keep running: %s", strings.Join(names, ", "))
}

// call runs a method of the embedder. If it has not returned some time after ctx has ended, it is
// abandoned: it keeps running, and no other call of the same subject begins until it returns. The
// error names the cause of ctx if ctx has ended.
func call[T any](ctx context.Context, r *Runtime, of subject, f func() (T, error)) (got T, err error) {
	for {
		c, before := r.calls.begin(of)
		if c != nil {
			return run(ctx, r, of, c, f)
		}
		if before == nil {
			<-ctx.Done()
			return got, fmt.Errorf("%w: %d earlier calls have not returned", context.Cause(ctx), maxAbandoned)
		}
		select {
		case <-before.returned:
		case <-ctx.Done():
			return got, notReturned(ctx, before)
		}
	}
}

func run[T any](ctx context.Context, r *Runtime, of subject, c *inFlight, f func() (T, error)) (got T, err error) {
	var answer T // read only once the call has returned
	done := start(r.log, of, func() (err error) {
		defer r.calls.end(of, c)
		answer, err = f()
		return err
	})
	select {
	case err = <-done:
		return answer, withCause(ctx, err)
	case <-ctx.Done():
	}
	for {
		err, returned, took := await(done, grace, time.After)
		if returned {
			return answer, withCause(ctx, err)
		}
		if !late(took, grace) {
			r.calls.abandon(of, c)
			return got, notReturned(ctx, c)
		}
	}
}

// await waits for a call to return, and returns how long that took. It waits in slices: under a CPU limit each slice
// ends late, and late notices the sum; a single wait would end late only once.
func await[T any](returns <-chan T, wait time.Duration, after func(time.Duration) <-chan time.Time) (got T, returned bool, took time.Duration) {
	began := time.Now()
	for range max(1, wait/slice) {
		select {
		case got = <-returns:
			return got, true, time.Since(began)
		case <-after(min(wait, slice)):
		}
	}
	select {
	case got = <-returns: // both were ready
		returned = true
	default:
	}
	return got, returned, time.Since(began)
}

// late reports whether a wait took so long that this process was without CPU. So was the embedder's code,
// which is not to blame.
func late(took, wait time.Duration) bool { return took > wait+max(wait/2, reportWithin) }

// timeoutError is the cause of a context that has timed out. Its text is made when somebody asks.
type timeoutError struct {
	of    string
	after time.Duration
}

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %s%v", e.of, e.after) }

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func notReturned(ctx context.Context, c *inFlight) error {
	return fmt.Errorf("%w: the call of %v ago has not returned", context.Cause(ctx), time.Since(c.began).Round(time.Millisecond))
}

var errGoexit = errors.New("the embedder's code called runtime.Goexit")

// start runs code of the embedder on a goroutine of its own: a Goexit ends nothing else. A panic and
// a runtime.Goexit are errors; a panic is logged.
func start(log *slog.Logger, of subject, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit // unless f returns or panics
		defer func() { done <- err }()
		if caught := panics.Try(func() { err = f() }); caught != nil {
			log.Error("embedder's code panicked", "method", of.method, "podUID", of.uid, "err", caught.AsError())
			err = fmt.Errorf("panic: %v", caught.Value)
		}
	}()
	return done
}

// Start runs code of the embedder on a goroutine of its own. The channel gets its error once it has
// returned. A panic and a runtime.Goexit are errors; a panic is logged.
func Start(log *slog.Logger, method string, uid pleg.PodUID, f func() error) <-chan error {
	return start(log, subject{method, uid}, f)
}
