package border_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// stuck is a runtime whose calls ignore their context until release is closed.
type stuck struct {
	release chan struct{}
	begun   chan string
}

func (s stuck) block(method string) {
	s.begun <- method
	<-s.release
}

func (s stuck) ListPods(context.Context) ([]*pleg.Pod, error) {
	s.block("ListPods")
	return []*pleg.Pod{{UID: "a"}}, nil
}

func (s stuck) ListPod(context.Context, pleg.PodUID) (*pleg.Pod, error) {
	s.block("ListPod")
	return nil, nil
}

func (s stuck) PodStatus(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	if pod.UID != "well" {
		s.block("PodStatus")
	}
	return &pleg.PodStatus{}, nil
}

func (s stuck) WatchEvents(context.Context, func(), func(pleg.Hint)) error {
	s.block("WatchEvents")
	return nil
}

// A call that ignores its context is abandoned: it is counted and logged, and named, and no second
// call begins before it returns.
func TestCallThatIgnoresItsContextIsAbandoned(t *testing.T) {
	pod := &pleg.Pod{UID: "a"}
	for name, call := range map[string]func(context.Context, *border.Runtime) error{
		"ListPods": func(ctx context.Context, r *border.Runtime) error { _, err := r.ListPods(ctx); return err },
		"ListPod": func(ctx context.Context, r *border.Runtime) error {
			_, err := r.PodLister().ListPod(ctx, "a")
			return err
		},
		"PodStatus": func(ctx context.Context, r *border.Runtime) error {
			_, err := r.PodStatus(ctx, pod, nil, time.Hour)
			return err
		},
		"WatchEvents": func(ctx context.Context, r *border.Runtime) error { return r.EventWatcher().WatchEvents(ctx, nil, nil) },
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := stuck{make(chan struct{}), make(chan string, 2)}
			var log kit.Log
			reg := prometheus.NewPedanticRegistry()
			r, err := border.New(rt, border.Options{ListTimeout: time.Hour, Logger: log.Logger(), Metrics: instrument.Registry{Registerer: reg}})
			kit.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			began := time.Now()
			if err := call(ctx, r); err == nil || !strings.HasSuffix(err.Error(), "context deadline exceeded: the call of 11s ago has not returned") {
				t.Errorf("error %v, want that the call has not returned", err)
			}
			if took := time.Since(began); took != timeout+grace {
				t.Errorf("returned after %v, want its timeout and a moment", took)
			}
			of, uid := name+" of pod a", "a"
			if name == "ListPods" || name == "WatchEvents" {
				of, uid = name, `""`
			}
			log.RequireLines(t, 1, `level=WARN msg="runtime call ignores its context, abandoned" method=`+name+" podUID="+uid+" age=11s\n")
			if err := r.Abandoned(); err == nil || err.Error() != "calls of the runtime ignore their context and keep running: "+of+" (11s)" {
				t.Errorf("Abandoned = %v, want %s", err, of)
			}
			// No second call begins beside it; once it returns, one does.
			if err := call(ctx, r); err == nil || len(rt.begun) != 1 {
				t.Errorf("a second call: error %v, %d calls begun, want an error and one", err, len(rt.begun))
			}
			second := make(chan struct{})
			go func() { defer close(second); _ = call(t.Context(), r) }()
			synctest.Wait()
			if len(rt.begun) != 1 {
				t.Error("a second call began beside the first")
			}
			close(rt.release)
			<-second
			if len(rt.begun) != 2 {
				t.Error("no call began after the first had returned")
			}
			if err := r.Abandoned(); err != nil {
				t.Errorf("Abandoned = %v, want nil", err)
			}
		})
	}
}

// Abandoned calls are bounded, however many have returned: beyond that none begins, except of lists, until some
// return.
func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 256
		rt := stuck{make(chan struct{}), make(chan string, 2*bound)}
		r, err := border.New(rt, border.Options{ListTimeout: timeout, Logger: slog.New(slog.DiscardHandler)})
		kit.Must(t, err)
		for range bound {
			_, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "well"}, nil, timeout)
			kit.Must(t, err)
		}
		for n := range bound + 5 {
			go func() {
				_, _ = r.PodStatus(t.Context(), &pleg.Pod{UID: pleg.PodUID(fmt.Sprint(n))}, nil, time.Duration(n)*time.Minute)
			}()
		}
		for _, wait := range []time.Duration{bound*time.Minute - 30*time.Second, bound * time.Minute} { // as many as allowed, and more
			time.Sleep(wait)
			began := time.Now()
			const says = "inspect pod / (more): no answer within the inspect timeout of 10s: 256 earlier calls have not returned"
			if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "more"}, nil, timeout); err == nil || err.Error() != says || time.Since(began) != timeout {
				t.Errorf("error %v after %v, want %s after the timeout", err, time.Since(began), says)
			}
		}
		if n := len(rt.begun); n != bound+5 {
			t.Errorf("%d calls begun, want the calls before the bound was reached", n)
		}
		if err := r.Abandoned(); err == nil || !strings.HasSuffix(err.Error(), "keep running: PodStatus of pod 0 (8h31m50s), PodStatus of pod 1 (8h31m50s), PodStatus of pod 10 (8h31m50s), 258 more") {
			t.Errorf("Abandoned = %v, want three calls by name and 258 more", err)
		}
		go func() { _, _ = r.ListPods(t.Context()) }()
		synctest.Wait()
		if n := len(rt.begun); n != bound+6 {
			t.Errorf("%d calls begun, want a list too", n)
		}
		close(rt.release)
		synctest.Wait()
		if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "more"}, nil, timeout); err != nil {
			t.Errorf("error %v once all have returned", err)
		}
	})
}
