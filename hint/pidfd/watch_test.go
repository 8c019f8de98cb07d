package pidfd_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/hint/pidfd"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// scripted is a pipeline that sends events as the test wants. It knows no process of a container,
// and notes the containers whose end is waited for.
type scripted struct {
	pidfd.Pipeline
	events  chan pleg.Event
	waiting map[pleg.ContainerID]context.Context
}

func (s scripted) Watch(ctx context.Context, _ pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		for {
			select {
			case ev := <-s.events:
				if !yield(ev, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s scripted) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	s.waiting[q.Container] = ctx
	return lookup.Container{}, errors.New("unknown")
}

// A container is watched until the runtime says that it has ended, until its pod is gone, or until
// a Gap after which its pod does not come again.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted{events: make(chan pleg.Event), waiting: make(map[pleg.ContainerID]context.Context)}
		kit.Run(t, func(ctx context.Context) error { return pidfd.Run(ctx, s, pidfd.Options{}) })
		status := func(uid pleg.PodUID, states map[pleg.ContainerID]pleg.State) pleg.Event {
			st := &pleg.PodStatus{UID: uid}
			for id, state := range states {
				st.Containers = append(st.Containers, &pleg.ContainerStatus{ID: id, State: state})
			}
			return pleg.Event{Type: pleg.PodSync, PodUID: uid, Status: st}
		}
		const running, exited = pleg.StateRunning, pleg.StateExited
		for _, step := range []struct {
			event pleg.Event
			want  []pleg.ContainerID
		}{
			{status("web", map[pleg.ContainerID]pleg.State{"w1": running}), []pleg.ContainerID{"w1"}},
			{status("web", map[pleg.ContainerID]pleg.State{"w1": running, "w2": running}), []pleg.ContainerID{"w1", "w2"}},
			{status("db", map[pleg.ContainerID]pleg.State{"d1": running}), []pleg.ContainerID{"d1", "w1", "w2"}},
			{status("web", map[pleg.ContainerID]pleg.State{"w1": exited, "w2": running}), []pleg.ContainerID{"d1", "w2"}},
			{status("db", nil), []pleg.ContainerID{"w2"}},
			{status("db", map[pleg.ContainerID]pleg.State{"d2": running}), []pleg.ContainerID{"d2", "w2"}},
			{pleg.Event{Type: pleg.Gap}, nil},
			{status("db", map[pleg.ContainerID]pleg.State{"d2": running}), []pleg.ContainerID{"d2"}},
			{pleg.Event{Type: pleg.Synced}, []pleg.ContainerID{"d2"}},
		} {
			s.events <- step.event
			synctest.Wait()
			var watched []pleg.ContainerID
			for id, ctx := range s.waiting {
				if ctx.Err() == nil {
					watched = append(watched, id)
				}
			}
			if slices.Sort(watched); !slices.Equal(watched, step.want) {
				t.Errorf("after %s of %q: watched are %q, want %q", step.event.Type, step.event.PodUID, watched, step.want)
			}
		}
	})
}
