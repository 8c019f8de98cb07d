package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

// byPod joins the events of each pod.
func byPod(events []string) map[string]string {
	out := make(map[string]string)
	for _, e := range events {
		uid, what, _ := strings.Cut(e, " ")
		if out[uid] != "" {
			what = out[uid] + ", " + what
		}
		out[uid] = what
	}
	return out
}

// When Relist returns, the events have been sent and the pod cache is complete, also
// if the generator was never started, and after each relist no goroutine is left.
func TestRelist(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime, cache := newFakeRuntime(), newRecorder()
				p := kubelet.New(runtime, make(chan *pleg.PodLifecycleEvent, 1000),
					&pleg.RelistDuration{RelistPeriod: time.Hour}, cache, clock.RealClock{})
				defer p.Stop()
				if running {
					p.Start(quiet(t))
					synctest.Wait()
				}
				for i := range 40 {
					uid := types.UID(fmt.Sprint(i))
					runtime.set(uid, fmt.Sprintf("c%d=running", i))
					runtime.slow(uid, time.Duration(i%3)*100*time.Millisecond)
				}
				broken := errors.New("broken")
				runtime.breakPod("7", broken)
				p.Relist(quiet(t))
				if got := drain(p.Watch()); len(got) != 39 {
					t.Errorf("%d events of the first relist, want 39: %q", len(got), got)
				}
				if _, err := cache.Get("7"); err != broken { //nolint:errorlint // must be the same error
					t.Errorf("cache has %v of the broken pod", err)
				}
				runtime.breakPod("7", nil)
				runtime.set("8", "")
				p.Relist(quiet(t))
				got := byPod(drain(p.Watch()))
				if got["7"] != "Started c7" || got["8"] != "Died c8, Removed c8" || len(got) != 2 {
					t.Errorf("events of the second relist %q", got)
				}
				if n := runtime.inspections("1"); n != 1 {
					t.Errorf("%d inspections of a pod that has not changed, want 1", n)
				}
			})
		})
	}
}

// Relist returns if the list fails, and when its context ends.
func TestRelistFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := newFakeRuntime()
		runtime.set("1", "c1=running")
		p := kubelet.New(runtime, make(chan *pleg.PodLifecycleEvent, 10),
			&pleg.RelistDuration{RelistPeriod: time.Hour}, newRecorder(), clock.RealClock{})
		runtime.fail(errors.New("no list"))
		p.Relist(quiet(t))
		if ok, _ := p.Healthy(); ok {
			t.Error("healthy after a list that failed")
		}
		runtime.fail(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		runtime.slow("1", time.Minute)
		began := time.Now()
		p.Relist(ctx)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %v", took)
		}
		drain(p.Watch())
		runtime.set("2", "c2=running")
		p.Relist(quiet(t))
		if got := byPod(drain(p.Watch())); got["2"] != "Started c2" {
			t.Errorf("events %q", got)
		}
	})
}

// A status that the runtime returns beside an error is kept with it.
func TestStatusBesideError(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		broken := errors.New("broken")
		partial := &kubecontainer.PodStatus{ID: "1", Name: "partial"}
		f.runtime.set("1", "c1=running")
		f.runtime.breakPod("1", broken)
		f.runtime.beside("1", partial)
		f.relist()
		if status, err := f.cache.Get("1"); status != partial || err != broken { //nolint:errorlint // must be the same error
			t.Errorf("cache has %+v, %v", status, err)
		}
	})
}

// If RequestReinspect is called during an inspection, another one follows.
func TestReinspectDuringInspectionInspectsAgain(t *testing.T) {
	runFixture(t, nil, func(f *fixture) {
		f.runtime.slow("1", 200*time.Millisecond)
		f.runtime.set("1", "c1=running")
		f.wait(600 * time.Millisecond)
		if n := f.runtime.inspections("1"); n != 1 {
			t.Fatalf("%d inspections started, want 1", n)
		}
		f.pleg.RequestReinspect("1")
		f.wait(400 * time.Millisecond)
		f.expect("1 Started c1")
		f.wait(time.Second)
		f.expect("1 PodSync")
	})
}
