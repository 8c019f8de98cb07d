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

func TestSeedDeterminesIDs(t *testing.T) {
	of := func(seed uint64) []string {
		pods := populate(t, newRuntime(t, simruntime.Options{Seed: seed}), 5, 2)
		return append(sandboxIDs(pods), containerIDs(pods)...)
	}
	if !slices.Equal(of(1), of(1)) {
		t.Error("the same seed made other ids")
	}
	if slices.Equal(of(1), of(2)) {
		t.Error("another seed made the same ids")
	}
}

func TestPopulateStates(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	pods, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 3, Exited: 1, Dead: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		states := map[simruntime.State]int{}
		for _, c := range p.Containers {
			states[c.State]++
		}
		if len(p.Containers) != 9 || states[simruntime.Running] != 2 || states[simruntime.Exited] != 7 {
			t.Errorf("pod %s has %v", p.Name, states)
		}
	}
	if _, err := rt.Populate(simruntime.Population{Pods: 1, Exited: 1}); err == nil {
		t.Error("more exited containers than containers were accepted")
	}
	if got := rt.Pods(); len(got) != 3 || got[0].UID != pods[0].UID {
		t.Errorf("pods are not in the order of creation: %v", got)
	}
}

func TestBurst(t *testing.T) {
	for name, tc := range map[string]struct {
		change         simruntime.Change
		pods           int
		running, total int // containers of each pod changed
	}{
		"restart": {simruntime.Restart, 5, 2, 4},
		"replace": {simruntime.Replace, 5, 2, 2},
		"exit":    {simruntime.Exit, 5, 0, 2},
		"remove":  {simruntime.Remove, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			rt := newRuntime(t, simruntime.Options{})
			pods := populate(t, rt, 5, 2)
			changed := rt.Burst(3, tc.change)
			if want := []string{pods[0].UID, pods[1].UID, pods[2].UID}; !slices.Equal(changed, want) {
				t.Errorf("changed %v, want %v", changed, want)
			}
			if got := len(rt.Pods()); got != tc.pods {
				t.Errorf("%d pods, want %d", got, tc.pods)
			}
			for _, uid := range changed {
				p, _ := rt.Pod(uid)
				running := 0
				for _, c := range p.Containers {
					if c.State == simruntime.Running {
						running++
					}
				}
				if running != tc.running || len(p.Containers) != tc.total {
					t.Errorf("pod has %d of %d containers running, want %d of %d", running, len(p.Containers), tc.running, tc.total)
				}
			}
		})
	}
}

func TestInvalidStepsFail(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	p := populate(t, rt, 1, 1)[0]
	stopped := populate(t, rt, 1, 1)[0]
	sandbox, running, exited := p.Sandboxes[0].ID, p.Containers[0].ID, stopped.Containers[0].ID
	if err := rt.StopSandbox(stopped.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	rt.Update(func(tx *simruntime.Txn) {
		for name, tc := range map[string]struct {
			err  func() error
			want error
		}{
			"exit none":     {func() error { return tx.ExitContainer("x", 0, "") }, simruntime.ErrNotFound},
			"exit twice":    {func() error { return tx.ExitContainer(exited, 0, "") }, simruntime.ErrState},
			"restart none":  {func() error { return second(tx.RestartContainer("x")) }, simruntime.ErrNotFound},
			"restart dead":  {func() error { return second(tx.RestartContainer(exited)) }, simruntime.ErrState},
			"start running": {func() error { return tx.StartContainer(running) }, simruntime.ErrState},
			"remove none":   {func() error { return tx.RemoveContainer("x") }, simruntime.ErrNotFound},
			"stop none":     {func() error { return tx.StopSandbox("x") }, simruntime.ErrNotFound},
			"stop pod none": {func() error { return tx.StopPod("x") }, simruntime.ErrNotFound},
			"remove sb":     {func() error { return tx.RemoveSandbox(running) }, simruntime.ErrNotFound},
			"remove pod":    {func() error { return tx.RemovePod(sandbox) }, simruntime.ErrNotFound},
			"prune none":    {func() error { return tx.PruneDead("x") }, simruntime.ErrNotFound},
			"add twice":     {func() error { return second(tx.AddPod(simruntime.PodSpec{UID: p.UID})) }, simruntime.ErrExists},
			"second ready":  {func() error { return second(tx.AddSandbox(p.UID)) }, simruntime.ErrState},
			"no pod":        {func() error { return second(tx.AddSandbox("x")) }, simruntime.ErrNotFound},
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

func TestNextSandboxAttempt(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	p := populate(t, rt, 1, 1)[0]
	rt.Update(func(tx *simruntime.Txn) {
		if err := tx.StopPod(p.UID); err != nil {
			t.Error(err)
		}
		if _, err := tx.AddSandbox(p.UID); err != nil {
			t.Error(err)
		}
		for _, state := range []simruntime.State{simruntime.Created, simruntime.Unknown} {
			c, err := tx.AddContainer(p.UID, simruntime.ContainerSpec{Name: state.String(), State: state})
			if err != nil || c.State != state {
				t.Errorf("added %v, %v; want it %v", c, err, state)
			}
		}
	})
	got, _ := rt.Pod(p.UID)
	if len(got.Sandboxes) != 2 || got.Sandboxes[0].Attempt != 1 || !got.Sandboxes[0].Ready || got.Sandboxes[1].Ready {
		t.Errorf("sandboxes %+v", got.Sandboxes)
	}
	if got.Sandboxes[1].IPs != nil || len(got.Sandboxes[0].IPs) != 1 || len(got.Containers) != 3 {
		t.Errorf("pod %+v", got)
	}
}

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
