package doctor

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errNoTime is the error of a call that was cancelled by the end of the examination.
var errNoTime = status.Error(codes.Canceled, "no time left")

// timings collects the durations of calls. It is safe for concurrent use.
type timings struct {
	mu    sync.Mutex
	order []string
	calls map[string]*timing
}

type timing struct {
	took         []time.Duration
	hung, failed int
	err          error
}

// call makes one call within Options.CallTimeout and records its duration. If the
// examination ends first, it returns errNoTime.
func (e *examination) call(ctx context.Context, method string, call func(context.Context) error) error {
	callCtx, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	began := time.Now()
	err := call(callCtx)
	if err != nil && ctx.Err() != nil {
		return errNoTime
	}
	e.calls.add(method, time.Since(began), err)
	return err
}

func (t *timings) add(method string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[method]
	if c == nil {
		c = &timing{}
		if t.calls == nil {
			t.calls = make(map[string]*timing)
		}
		t.calls[method] = c
		t.order = append(t.order, method)
	}
	c.took = append(c.took, took)
	switch {
	case hangs(err):
		c.hung++
	case err != nil && status.Code(err) != codes.NotFound: // removed since the list
		c.failed++
	default:
		return
	}
	if c.err == nil {
		c.err = err
	}
}

func hangs(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

func (t *timings) summary() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := make([]Call, 0, len(t.order))
	for _, method := range t.order {
		c := t.calls[method]
		slices.Sort(c.took)
		call := Call{
			Method: method, Count: len(c.took), Hung: c.hung, Failed: c.failed,
			MedianSeconds: c.took[len(c.took)/2].Seconds(), LongestSecs: c.took[len(c.took)-1].Seconds(),
		}
		if c.err != nil {
			call.Error = status.Convert(c.err).Message()
		}
		calls = append(calls, call)
	}
	return calls
}
