package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The loop skips until the first list has succeeded, and then acts on events.
func TestSyncLoopActsOnEvents(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	if _, err := rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.Unavailable, Times: 1}); err != nil {
		t.Fatal(err)
	}
	out := exampletest.Run(t, rt, run)
	if read := out.Await("sync shop/web: 1 of 1 containers run"); !strings.HasPrefix(read[0], "skip: ") {
		t.Errorf("printed %q, want a skip before the first list", read)
	}
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	out.Await("sync shop/web: 0 of 1 containers run", "clean up shop/web nginx")
}

// skips records when the loop printed that it does nothing.
type skips struct {
	began time.Time
	at    []time.Duration
}

// Write implements [io.Writer].
func (s *skips) Write(line []byte) (int, error) {
	s.at = append(s.at, time.Since(s.began))
	return len(line), nil
}

// TestUnhealthyLoopBacksOff checks that the loop waits 100 ms, 200 ms and so on, and at
// most 5 s.
func TestUnhealthyLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		s := &skips{began: time.Now()}
		l := &loop{healthy: func() (bool, error) { return false, errors.New("unhealthy") }, out: s}
		if err := l.run(ctx); err != nil {
			t.Fatalf("run ended with %v", err)
		}
		want := []time.Duration{0, 100, 300, 700, 1500, 3100, 6300, 11300}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(s.at, want) {
			t.Errorf("skipped at %v, want %v", s.at, want)
		}
	})
}
