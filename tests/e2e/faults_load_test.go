//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// loadFaults are no harm done to anything: there is only too much.
var loadFaults = []fault{
	{name: "a sandbox list too large to send", modes: patient, run: largeList},
	{name: "200 pods at once", modes: patient, run: manyPods},
}

// largeList makes pods with so many annotations that containerd cannot send the
// list of them.
func largeList(ctx context.Context, tr *trial) {
	const pods = 80
	t, l, s := tr.t, tr.lab, tr.scene
	tr.inject(ctx)
	large := map[string]string{"large": strings.Repeat("x", 250<<10)}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("large-", i), HostNetwork: true, Annotations: large}
	}
	made, err := l.RunPods(ctx, specs)
	must(t, err)
	s.pods = made
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i))})
		return err
	}))
	if _, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("the list of sandboxes: got %v, want one that cannot be sent", err)
	}
	tr.awaitAll(ctx)
	logPortions(ctx, t, l)
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		if i%2 == 0 {
			return nil
		}
		return l.Trigger(ctx, mainOf(p))
	}))
	tr.awaitAll(ctx)
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		if i%4 == 0 {
			return l.StopPod(ctx, p)
		}
		return nil
	}))
	tr.awaitAll(ctx)
	kept := s.pods[1]
	s.pods = slices.Delete(s.pods, 1, 2)
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))
	tr.awaitAll(ctx)
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
	s.pods = []*lab.Pod{kept}
	tr.lift()
	tr.end(ctx, false)
	tr.afterwards(ctx)
}

// logPortions prints how long lists take that are made in portions.
func logPortions(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	client, err := cri.New(l.Endpoint(), cri.Options{})
	must(t, err)
	defer client.Close()
	var took []time.Duration
	for range 4 {
		began := time.Now()
		_, err := client.ListPods(ctx)
		must(t, err)
		took = append(took, time.Since(began).Round(time.Millisecond))
	}
	t.Logf("lists in portions took %v; degraded: %v", took, client.Degraded())
}

// manyPods makes, changes and removes as many pods at once as the runtime can.
// Each of the three is told whole before the next.
func manyPods(ctx context.Context, tr *trial) {
	const pods = 200
	t, l, s := tr.t, tr.lab, tr.scene
	tr.inject(ctx)
	step := func(what string, f func(context.Context, int, *lab.Pod) error) {
		t.Helper()
		began := time.Now()
		must(t, s.each(ctx, f))
		done := time.Now()
		took, err := tr.settled(ctx, done)
		must(t, err)
		t.Logf("%s took the runtime %v; all was known %v later", what, done.Sub(began).Round(time.Millisecond), took)
	}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("many-", i), HostNetwork: i%4 != 0}
	}
	made, err := l.RunPods(ctx, specs)
	must(t, err)
	s.pods = made
	step("200 starts", func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i))})
		return err
	})
	// All processes end at the same moment; the runtime sees it when it can.
	for _, p := range s.pods {
		must(t, l.TriggerProcess(mainOf(p)))
	}
	step("200 ends at one moment", func(ctx context.Context, _ int, p *lab.Pod) error { return l.AwaitDied(ctx, mainOf(p)) })
	step("200 sandboxes stopped", func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) })
	kept := s.pods[0]
	s.pods = s.pods[1:]
	step("200 pods removed", func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) })
	s.pods = []*lab.Pod{kept}
	tr.lift()
	tr.end(ctx, false)
	tr.afterwards(ctx)
}
