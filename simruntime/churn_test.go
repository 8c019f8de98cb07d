package simruntime_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func churnOf(t *testing.T, seed uint64, opts simruntime.ChurnOptions) (actions []simruntime.Action, rt *simruntime.Runtime) {
	t.Helper()
	rt = newRuntime(t, simruntime.Options{Seed: seed})
	populate(t, rt, 20, 2)
	opts.Seed = seed
	opts.Observe = func(a simruntime.Action) { actions = append(actions, a) }
	if err := rt.Churn(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	return actions, rt
}

func TestChurnRepeatsForItsSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := simruntime.ChurnOptions{Rate: 50, Actions: 500}
		first, _ := churnOf(t, 1, opts)
		second, _ := churnOf(t, 1, opts)
		other, _ := churnOf(t, 2, opts)
		if !slices.Equal(first, second) {
			t.Error("the same seed made another sequence")
		}
		if slices.Equal(first, other) {
			t.Error("another seed made the same sequence")
		}
	})
}

func TestChurnIsRealistic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		began := time.Now()
		actions, rt := churnOf(t, 5, simruntime.ChurnOptions{Rate: 20, Pods: 40, Actions: n})
		if got, want := time.Since(began), n*50*ms; got != want {
			t.Errorf("%d actions took %v, want %v", n, got, want)
		}
		counts := map[simruntime.ActionKind]int{}
		for _, a := range actions {
			counts[a.Kind]++
			if a.Kind == simruntime.ActionDelete && a.Namespace == "kube-system" {
				t.Errorf("deleted %s of kube-system", a.Name)
			}
		}
		if got := slices.Sorted(maps.Keys(counts)); len(got) != 7 || len(actions) != n {
			t.Errorf("%d actions: %v, want %d of all 7 kinds", len(actions), counts, n)
		}
		if gone := counts[simruntime.ActionDelete] + counts[simruntime.ActionComplete]; counts[simruntime.ActionRemove] < gone*9/10 {
			t.Errorf("%d pods ended but only %d were removed", gone, counts[simruntime.ActionRemove])
		}
		pods := rt.Pods()
		if len(pods) < 25 || len(pods) > 60 {
			t.Errorf("%d pods at the end, want about 40", len(pods))
		}
		for _, p := range pods {
			if len(p.Containers) > 4 {
				t.Errorf("pod %s has %d containers: dead ones pile up", p.Name, len(p.Containers))
			}
		}
	})
}

func TestChurnEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t, simruntime.Options{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second+ms, errors.New("enough"))
		defer cancel()
		n := 0
		err := rt.Churn(ctx, simruntime.ChurnOptions{Observe: func(simruntime.Action) { n++ }})
		if err == nil || err.Error() != "enough" || n != 100 {
			t.Errorf("Churn returned %v after %d actions, want the cause after 100", err, n)
		}
	})
}
