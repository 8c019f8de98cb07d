//go:build linux

package e2e_test

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// width is the number of pods that a scene works on at once. The runtime does
// not get faster with more.
const width = 16

// scene is a set of pods of a lab and those who observe it.
type scene struct {
	lab       *lab.Lab
	observers []*record
	pods      []*lab.Pod
}

func newScene(l *lab.Lab, observers ...*record) *scene {
	return &scene{lab: l, observers: observers}
}

// runPods creates n pods in two namespaces and awaits their events. Two in three
// are on the host's network: bridges take long to set up, not to watch.
func (s *scene) runPods(ctx context.Context, n int) error {
	specs := make([]lab.PodSpec, n)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprintf("pod-%d", i), Namespace: []string{"shop", "batch"}[i%2], HostNetwork: i%3 != 0}
	}
	pods, err := s.lab.RunPods(ctx, specs)
	if err != nil {
		return err
	}
	s.pods = append(s.pods, pods...)
	return s.awaitAll(ctx)
}

// each does one step with every pod at once, and then awaits the events of all.
func (s *scene) each(ctx context.Context, step func(context.Context, int, *lab.Pod) error) error {
	g, stepCtx := errgroup.WithContext(ctx)
	g.SetLimit(width)
	for i, p := range s.pods {
		g.Go(func() error { return step(stepCtx, i, p) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.awaitAll(ctx)
}

func (s *scene) awaitAll(ctx context.Context) error {
	for _, p := range s.pods {
		if err := await(ctx, s.lab, p.UID, s.observers...); err != nil {
			return err
		}
	}
	return nil
}
