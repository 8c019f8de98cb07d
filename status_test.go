package pipeline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// reporting is a runtime that reports on itself.
type reporting struct {
	pleg.Runtime
	calls  atomic.Pointer[[]pleg.Call]
	probes atomic.Int64
}

func (r *reporting) set(calls ...pleg.Call) { r.calls.Store(&calls) }

func (r *reporting) Calls() []pleg.Call { return *r.calls.Load() }

func (r *reporting) Probe(context.Context) error {
	r.probes.Add(1)
	return nil
}

var errFallback = errors.New("lists work in portions")

func (*reporting) Endpoint() string { return "unix:///runtime.sock" }
func (*reporting) Process() *pleg.Process {
	return &pleg.Process{PID: 41, Name: "containerd", State: "T"}
}
func (*reporting) Stuck() []pleg.Stuck { return []pleg.Stuck{{UID: "stuck"}} }
func (*reporting) Degraded() error     { return errFallback }

// The status has what the runtime reports: its address and fallbacks, the process of one that is
// in trouble, and the call that a list or an inspection waits for.
func TestStatusHasWhatTheRuntimeReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		rt := &reporting{Runtime: runtime.Basic()}
		rt.set()
		var log kit.Log
		r := kit.New(t, pipeline.Options{Runtime: rt, RelistPeriod: 9 * time.Second, InspectTimeout: 5 * time.Second, Logger: log.Logger()})
		runtime.Set("a", "c=running")
		r.Start(t)
		time.Sleep(8*time.Second + time.Millisecond)
		s := r.Status()
		if s.Endpoint != rt.Endpoint() || !errors.Is(s.Degraded, errFallback) || len(s.Stuck) != 1 || s.Runtime != nil {
			t.Errorf("status %+v, want the address, the fallback and the stuck pod, and no process while lists succeed", s)
		}
		if n := rt.probes.Load(); n != 4 {
			t.Errorf("%d probes in 8 s without a list, want 4", n)
		}

		runtime.SetListFault(plegtest.Hang)
		rt.set(pleg.Call{Method: "ContainerStatus", PodUID: "a"}, pleg.Call{Method: "ListContainers"})
		time.Sleep(2 * time.Second)
		if s := r.Status(); s.Relist.Call.String() != "ListContainers" || s.Runtime == nil || s.Runtime.PID != 41 {
			t.Errorf("status %+v, want the call of the list and the process of the runtime", s)
		}
		time.Sleep(10 * time.Second)
		log.RequireLines(t, 1, "the list of all pods hangs")
	})
}

// The call that is named for a quarantined pod is that of the attempt in flight. Between two it is
// that of the last one.
func TestCallOfAQuarantinedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		rt := &reporting{Runtime: runtime.Basic()}
		rt.set()
		r := kit.New(t, pipeline.Options{Runtime: rt, InspectTimeout: 5 * time.Second})
		runtime.Set("a", "c=running")
		runtime.SetPodFault("a", func(ctx context.Context) error {
			<-ctx.Done()
			return &pleg.CallError{Call: pleg.Call{Method: "PodSandboxStatus", PodUID: "a"}, Err: ctx.Err()}
		})
		requireCall := func(at, want string) {
			t.Helper()
			synctest.Wait()
			s := r.Status()
			if len(s.Quarantined) != 1 || s.Quarantined[0].Call == nil || s.Quarantined[0].Call.Method != want {
				t.Errorf("%s: quarantined %+v, want the call %s", at, s.Quarantined, want)
			}
			if len(s.Failed) > 0 {
				t.Errorf("%s: %+v has failed, but hangs", at, s.Failed)
			}
		}
		r.Start(t)
		time.Sleep(5 * time.Second)
		requireCall("after the first attempt", "PodSandboxStatus")
		rt.set(pleg.Call{Method: "ContainerStatus", PodUID: "a"})
		for _, q := range r.Quarantined() {
			time.Sleep(time.Until(q.NextTry) + 100*time.Millisecond)
		}
		requireCall("during the second", "ContainerStatus")
		time.Sleep(3 * time.Second)
		if s := r.Status(); len(s.Overdue) != 1 || s.Overdue[0].Call == nil || s.Overdue[0].Call.Method != "ContainerStatus" {
			t.Errorf("overdue %+v, want the call ContainerStatus", s.Overdue)
		}
	})
}
