package simruntime_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// words are the containers of a pod in the order of their creation.
func words(pod *pleg.PodStatus) string {
	var all []string
	for _, c := range slices.Backward(pod.Containers) {
		word := fmt.Sprintf("%s#%d %v", c.Name, c.Attempt, c.State)
		if c.State == pleg.StateExited {
			word += fmt.Sprintf(" %d %s", c.ExitCode, c.Reason)
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// Each step of a pod does what it says, or nothing if it returns an error.
func TestStepsOfAPod(t *testing.T) {
	type state = simruntime.State
	newest := func(s *state, name string) pleg.ContainerID {
		i := slices.IndexFunc(s.Pod("u").Containers, func(c *pleg.ContainerStatus) bool { return c.Name == name })
		return s.Pod("u").Containers[i].ID
	}
	exit := func(s *state) error { return s.ExitContainer(newest(s, "app"), 3, "Wrong") }
	restart := func(s *state) error { _, err := s.RestartContainer(newest(s, "app")); return err }
	add := func(s *state) error {
		_, err := s.AddContainer("u", pleg.ContainerStatus{Name: "debug", Attempt: 4})
		return err
	}
	rt := simruntime.New(simruntime.Options{DualStack: true})
	pod := rt.AddPod(simruntime.PodSpec{UID: "u", Containers: []pleg.ContainerStatus{
		{}, {State: pleg.StateExited}, {Name: "job", State: pleg.StateExited, ExitCode: 2},
	}})
	const rest = ", app-2#0 exited 0 Completed, job#0 exited 2 Error"
	const alone = "app-2#0 exited 0 Completed, job#0 exited 2 Error, app#2 "
	if got := words(pod); got != "app#0 running"+rest || pod.Namespace != "default" || len(pod.IPs) != 2 {
		t.Errorf("the new pod is %+v with %s", pod, got)
	}
	for n, step := range []struct {
		do   func(*state) error
		err  error
		want string
	}{
		{exit, nil, "app#0 exited 3 Wrong" + rest},
		{exit, simruntime.ErrState, "app#0 exited 3 Wrong" + rest},
		{restart, nil, "app#0 exited 3 Wrong" + rest + ", app#1 running"},
		{restart, nil, "app#0 exited 3 Wrong" + rest + ", app#1 exited 1 Error, app#2 running"},
		{func(s *state) error { return s.PruneDead("u") }, nil, alone + "running"},
		{add, nil, alone + "running, debug#4 running"},
		{func(s *state) error { return s.RemoveContainer(newest(s, "debug")) }, nil, alone + "running"},
		{func(s *state) error { return s.RemoveContainer("other") }, simruntime.ErrNotFound, alone + "running"},
		{func(s *state) error { return s.StopPod("u") }, nil, alone + "exited 137 Error"},
		{func(s *state) error { return s.StopPod("u") }, nil, alone + "exited 137 Error"},
		{add, simruntime.ErrState, alone + "exited 137 Error"},
		{restart, simruntime.ErrState, alone + "exited 137 Error"},
		{func(s *state) error { return s.StopPod("other") }, simruntime.ErrNotFound, alone + "exited 137 Error"},
	} {
		rt.Update(func(s *state) {
			if err := step.do(s); !errors.Is(err, step.err) {
				t.Errorf("step %d: %v, want %v", n, err, step.err)
			}
		})
		if got := words(rt.Pod("u")); got != step.want {
			t.Errorf("step %d: the pod has %s, want %s", n, got, step.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a second pod with the UID was added")
		}
	}()
	rt.AddPod(simruntime.PodSpec{UID: "u"})
}

// The first containers have exited, and each has its dead attempts.
func TestPopulation(t *testing.T) {
	pod := simruntime.New(simruntime.Options{}).Populate(simruntime.Population{Pods: 1, Containers: 2, Exited: 1, Dead: 2})[0]
	first, second := pod.Containers[5].Name, pod.Containers[0].Name
	want := strings.ReplaceAll("%#0 exited 1 Error, %#1 exited 1 Error, %#2 exited 0 Completed, ", "%", first) +
		strings.ReplaceAll("%#0 exited 1 Error, %#1 exited 1 Error, %#2 running", "%", second)
	if got := words(pod); got != want || first == second {
		t.Errorf("the pod has %s, want %s", got, want)
	}
}
