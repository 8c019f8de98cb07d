//go:build linux

package e2e_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// Changes that the runtime announces badly, or not at all, are reported within this time with
// events on.
const (
	maxLate                = 2 * time.Second
	maxLateOfPoorAnnouncer = 3 * time.Second
)

// If a start fails, only the creation is announced. CRI-O does not announce the removal of a
// sandbox, and containerd announces it before its list lacks the sandbox.
func TestFailedStartsAndRemovedSandboxesAreNotLate(t *testing.T) {
	if !lab.DefaultRuntime().Traits().Events {
		t.Skip("needs a runtime with events")
	}
	ctx, f := newFixture(t, lab.Options{})
	settings, most := rareLists, maxLate
	if !f.lab.Traits().AllEvents {
		settings, most = settings.With(withEvents), maxLateOfPoorAnnouncer
	}
	in := f.run(ctx, instanceOptions{name: "events", settings: settings})
	f.runPods(ctx, 10)
	must(t, in.awaitStream(ctx))
	began := time.Now()
	if f.lab.Traits().FailsAtStart {
		f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error {
			c, err := f.lab.CreateContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Missing()})
			if err != nil {
				return err
			}
			return f.lab.FailStart(ctx, c)
		})
	}
	f.removePods(ctx)
	var late []time.Duration
	for _, e := range f.lab.History().All() {
		if e.Began.Before(began) || e.Step != lab.Died && e.Step != lab.Removed {
			continue
		}
		by := in.reported(e.ContainerID, e.Step).Sub(e.Ended)
		late = append(late, by)
		if by > most {
			t.Errorf("%s of %s/%s was reported after %v, want at most %v", e.Step, e.PodName, e.ContainerName, by, most)
		}
	}
	slices.Sort(late)
	t.Logf("FIGURE %d ends and removals: p50 %v, last %v after the runtime's answer", len(late), late[len(late)/2], late[len(late)-1])
}
