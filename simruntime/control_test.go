package simruntime_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestInvalidStepsFail(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	p := populate(t, rt, 1, 1)[0]
	stopped := populate(t, rt, 1, 1)[0]
	exited := stopped.Containers[0].ID
	kit.Must(t, rt.StopPod(stopped.UID))
	rt.Update(func(tx *simruntime.Txn) {
		for name, tc := range map[string]struct {
			err  func() error
			want error
		}{
			"exit none":     {func() error { return tx.ExitContainer("x", 0, "") }, simruntime.ErrNotFound},
			"exit twice":    {func() error { return tx.ExitContainer(exited, 0, "") }, simruntime.ErrState},
			"restart none":  {func() error { return second(tx.RestartContainer("x")) }, simruntime.ErrNotFound},
			"restart dead":  {func() error { return second(tx.RestartContainer(exited)) }, simruntime.ErrState},
			"remove none":   {func() error { return tx.RemoveContainer("x") }, simruntime.ErrNotFound},
			"stop pod none": {func() error { return tx.StopPod("x") }, simruntime.ErrNotFound},
			"remove pod":    {func() error { return tx.RemovePod("x") }, simruntime.ErrNotFound},
			"prune none":    {func() error { return tx.PruneDead("x") }, simruntime.ErrNotFound},
			"add twice":     {func() error { return second(tx.AddPod(simruntime.PodSpec{UID: p.UID})) }, simruntime.ErrExists},
			"in no pod":     {func() error { return second(tx.AddContainer("x", simruntime.ContainerSpec{})) }, simruntime.ErrNotFound},
			"in a dead one": {func() error { return second(tx.AddContainer(stopped.UID, simruntime.ContainerSpec{})) }, simruntime.ErrState},
		} {
			if err := tc.err(); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
		}
	})
	if got, _ := rt.Pod(p.UID); !slices.Equal(got.Containers, p.Containers) {
		t.Errorf("the pod was changed: %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

// churnOf returns the pod of each action.
func churnOf(t *testing.T, seed uint64, opts simruntime.ChurnOptions) (pods []string, rt *simruntime.Runtime) {
	t.Helper()
	rt = newRuntime(t, simruntime.Options{Seed: seed})
	populate(t, rt, 20, 2)
	opts.Seed = seed
	opts.Observe = func(podUID string) { pods = append(pods, podUID) }
	kit.Must(t, rt.Churn(t.Context(), opts))
	return pods, rt
}

func TestChurnRepeatsForItsSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := simruntime.ChurnOptions{Rate: 50, Actions: 500}
		first, rt := churnOf(t, 1, opts)
		second, again := churnOf(t, 1, opts)
		other, _ := churnOf(t, 2, opts)
		if !slices.Equal(first, second) || !slices.Equal(idsOf(rt.Pods()), idsOf(again.Pods())) {
			t.Error("the same seed made another sequence")
		}
		if slices.Equal(first, other) {
			t.Error("another seed made the same sequence")
		}
	})
}

func TestChurnIsRealistic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t, simruntime.Options{Seed: 5})
		keep := populate(t, rt, 20, 2)[0]
		const n = 3000
		system, reasons, added := make(map[string]bool), make(map[string]bool), make(map[string]bool)
		began := time.Now()
		err := rt.Churn(t.Context(), simruntime.ChurnOptions{Seed: 5, Rate: 20, Pods: 40, Actions: n, Keep: []string{keep.UID}, Observe: func(uid string) {
			pod, ok := rt.Pod(uid)
			if !ok {
				if system[uid] {
					t.Errorf("removed pod %s of kube-system", uid)
				}
				return
			}
			added[uid] = true
			system[uid] = pod.Namespace == "kube-system"
			for _, c := range pod.Containers {
				reasons[c.Reason] = true
			}
		}})
		if got, want := time.Since(began), n*50*ms; err != nil || got != want {
			t.Errorf("%d actions took %v, %v, want %v", n, got, err, want)
		}
		if want := map[string]bool{"": true, "Completed": true, "Error": true, "OOMKilled": true}; !maps.Equal(reasons, want) {
			t.Errorf("containers ended with %v, want %v", reasons, want)
		}
		if after, _ := rt.Pod(keep.UID); !slices.Equal(after.Containers, keep.Containers) {
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
