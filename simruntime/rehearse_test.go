package simruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]struct {
		rpcs        string
		from, until time.Duration
	}{
		"ContainerStatus/hang@0s":        {"ContainerStatus", 0, 0},
		"ListContainers/error@10s-1m":    {"ListContainers StreamContainers", 10 * time.Second, time.Minute},
		"ListPodSandbox/malform@1s":      {"ListPodSandbox StreamPodSandboxes", time.Second, 0},
		"PodSandboxStatus/slow@0s-500ms": {"PodSandboxStatus", 0, 500 * time.Millisecond},
		"GetContainerEvents/hang@0s":     {"GetContainerEvents", 0, 0},
	} {
		faults, err := simruntime.ParseFault(text, "u1")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var rpcs []string
		for _, f := range faults {
			rpcs = append(rpcs, f.RPC)
			if f.From != want.from || f.Until != want.until || f.PodUID != "u1" || f.Times != 0 || f.Probability != 0 {
				t.Errorf("%s: %+v, want each call of pod u1 from %v until %v", text, f, want.from, want.until)
			}
		}
		if got := strings.Join(rpcs, " "); got != want.rpcs {
			t.Errorf("%s: %s, want %s", text, got, want.rpcs)
		}
	}
	for _, text := range []string{
		"", "hang@0s", "ContainerStatus/hang", "Nothing/hang@0s", "Version/malform@0s", "ContainerStatus/hang@soon",
		"ContainerStatus/hang@-1s", "ContainerStatus/hang@5s-5s", "ContainerStatus/hang@5s-x",
	} {
		if faults, err := simruntime.ParseFault(text, ""); err == nil {
			t.Errorf("%q is parsed as %+v, want an error", text, faults)
		}
	}
}

// TestChurnKeepsPods requires that a pod to keep does not change however long the others
// do.
func TestChurnKeepsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, err := simruntime.New(simruntime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Populate(simruntime.Population{Pods: 5, Containers: 1}); err != nil {
			t.Fatal(err)
		}
		keep := rt.Pods()[0].UID
		err = rt.Churn(t.Context(), simruntime.ChurnOptions{Rate: 100, Actions: 500, Keep: []string{keep}, Observe: func(a simruntime.Action) {
			if a.PodUID == keep {
				t.Errorf("%s of the pod to keep", a.Kind)
			}
		}})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if rt.Pods()[0].UID != keep {
			t.Error("the pod to keep is gone")
		}
	})
}
