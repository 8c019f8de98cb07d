package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
)

// slow is a runtime whose lists take 300 ms. until is the deadline of the last one.
type slow struct {
	*containertest.FakeRuntime
	until time.Time
}

func (s *slow) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	s.until, _ = ctx.Deadline()
	time.Sleep(300 * time.Millisecond)
	return s.FakeRuntime.GetPods(ctx, all)
}

// The latency of an event counts from the beginning of the list that showed it.
func TestEventsCountFromTheBeginningOfTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		container := &kubecontainer.Container{ID: kubecontainer.ContainerID{ID: "c"}, State: kubecontainer.ContainerStateRunning}
		runtime := &slow{FakeRuntime: &containertest.FakeRuntime{
			AllPodList: []*containertest.FakePod{{Pod: &kubecontainer.Pod{ID: "u", Containers: []*kubecontainer.Container{container}}}},
			PodStatus:  kubecontainer.PodStatus{ID: "u", ContainerStatuses: []*kubecontainer.Status{{ID: container.ID, State: container.State}}},
		}}
		ctx, cancel := context.WithCancel(t.Context())
		c := config{dropIn: true, period: time.Second, timeout: time.Minute} // GenericPLEG does not end with its context
		var got []probe.Event
		ended := make(chan error)
		go func() {
			ended <- c.candidate(runtime)(ctx, func(e probe.Event) { got = append(got, e) })
		}()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if len(got) != 1 || got[0].Type != "ContainerStarted" || got[0].ID != "c" || !got[0].At.Equal(began) {
			t.Errorf("got %+v, want the start of c by the list of %v", got, began)
		}
		if most := runtime.until.Sub(began); most != 150*time.Second {
			t.Errorf("a list may take %v, want the timeouts of two calls and a half", most)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the candidate ended with %v", err)
		}
	})
}
