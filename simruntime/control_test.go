package simruntime_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// churnOf returns the pod of each action.
func churnOf(t *testing.T, seed uint64, opts simruntime.ChurnOptions) (pods []pleg.PodUID, rt *simruntime.Runtime) {
	t.Helper()
	rt = simruntime.New(simruntime.Options{Seed: seed})
	rt.Populate(simruntime.Population{Pods: 20, Containers: 2})
	opts.Seed = seed
	opts.Observe = func(uid pleg.PodUID) { pods = append(pods, uid) }
	kit.Must(t, rt.Churn(t.Context(), opts))
	return pods, rt
}

// show returns a line for each pod.
func show(rt *simruntime.Runtime) string {
	var lines strings.Builder
	for _, pod := range rt.Pods() {
		fmt.Fprintf(&lines, "%s/%s %t: %s\n", pod.Namespace, pod.Name, pod.Sandboxes[0].Ready, words(pod))
	}
	return lines.String()
}

func TestChurnRepeatsForItsSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, began := simruntime.ChurnOptions{Actions: 500}, time.Now()
		first, rt := churnOf(t, 1, opts)
		if took := time.Since(began); took != 50*time.Second {
			t.Errorf("500 actions took %v, want 50s at the usual rate", took)
		}
		second, again := churnOf(t, 1, opts)
		other, _ := churnOf(t, 2, opts)
		if !slices.Equal(first, second) || !slices.Equal(idsOf(rt.Pods()), idsOf(again.Pods())) {
			t.Error("the same seed made another sequence")
		}
		changed := "changed, the first ones:" // two that are due at the same action keep their order
		for _, uid := range first[:100] {
			changed += " " + string(uid[:4])
		}
		kit.Golden(t, "testdata/churn.txt", show(rt)+changed+"\n")
		if slices.Equal(first, other) {
			t.Error("another seed made the same sequence")
		}
		errStop := errors.New("stop")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errStop)
		empty := simruntime.New(simruntime.Options{})
		for _, rate := range []float64{1, 1e12} { // before the next action, and behind the rate
			if err := empty.Churn(ctx, simruntime.ChurnOptions{Rate: rate}); !errors.Is(err, errStop) || len(empty.Pods()) > 0 {
				t.Errorf("a churn that was stopped made %d pods and ended with %v, want its cause", len(empty.Pods()), err)
			}
		}
		var once sync.Once
		began = time.Now()
		kit.Must(t, empty.Churn(t.Context(), simruntime.ChurnOptions{Actions: 300, Observe: func(pleg.PodUID) {
			once.Do(func() { time.Sleep(20 * time.Second) })
		}}))
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("300 actions, of which one was observed for 20s, took %v, want 30s: they catch up", took)
		}
		if n := len(empty.Pods()); n < 25 || n > 40 {
			t.Errorf("%d pods are there after a churn that began with none, want about 30", n)
		}
	})
}

func TestChurnIsRealistic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Seed: 5})
		keep := rt.Populate(simruntime.Population{Pods: 20, Containers: 2})[0]
		const n = 3000
		system, ends, added := make(map[pleg.PodUID]bool), make(map[string]bool), make(map[pleg.PodUID]bool)
		ended, restarted := make(map[string]time.Time), time.Hour
		began := time.Now()
		err := rt.Churn(t.Context(), simruntime.ChurnOptions{Seed: 5, Rate: 20, Pods: 40, Actions: n, Keep: []pleg.PodUID{keep.UID}, Observe: func(uid pleg.PodUID) {
			pod := rt.Pod(uid)
			if pod == nil {
				if system[uid] {
					t.Errorf("removed pod %s of kube-system", uid)
				}
				return
			}
			added[uid] = true
			system[uid] = pod.Namespace == "kube-system"
			for _, c := range pod.Containers {
				if c.State == pleg.StateExited {
					ends[fmt.Sprint(c.ExitCode, " ", c.Reason)] = true
				}
				name := string(uid) + c.Name
				if at, ok := ended[name]; ok && c.State == pleg.StateRunning {
					restarted = min(restarted, c.StartedAt.Sub(at))
				}
				ended[name] = c.FinishedAt
			}
		}})
		if got, want := time.Since(began), n*50*ms; err != nil || got != want {
			t.Errorf("%d actions took %v, %v, want %v", n, got, err, want)
		}
		if want := map[string]bool{"0 Completed": true, "1 Error": true, "2 Error": true, "137 Error": true, "137 OOMKilled": true}; !maps.Equal(ends, want) {
			t.Errorf("containers ended with %v, want %v", ends, want)
		}
		if restarted.Round(ms) != time.Second {
			t.Errorf("a container was restarted after %v, want 1s at least", restarted)
		}
		if after := rt.Pod(keep.UID); !slices.Equal(after.Containers, keep.Containers) {
			t.Errorf("the pod to keep has %v, want %v", after.Containers, keep.Containers)
		}
		pods := rt.Pods()
		if len(pods) < 25 || len(pods) > 60 || len(added) < 5*len(pods) {
			t.Errorf("%d of %d pods at the end, want about 40 of many more", len(pods), len(added))
		}
		for _, p := range pods {
			if len(p.Containers) > 4 {
				t.Errorf("pod %s has %d containers: dead ones pile up", p.Name, len(p.Containers))
			}
		}
	})
}
