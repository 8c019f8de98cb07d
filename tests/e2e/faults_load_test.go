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

// loadFaults break nothing: they overload the runtime.
var loadFaults = []fault{
	{name: "a sandbox list too large to send", modes: longTimeouts, run: largeList},
	{name: "200 pods at once", modes: longTimeouts, run: manyPods},
}

// largeList makes pods with so many annotations that containerd cannot send the
// list of them.
func largeList(ctx context.Context, f *fixture) {
	const pods = 80
	t, l := f.t, f.lab
	f.beginFault(ctx)
	large := map[string]string{"large": strings.Repeat("x", 250<<10)}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("large-", i), HostNetwork: true, Annotations: large}
	}
	var err error
	f.pods, err = l.RunPods(ctx, specs)
	must(t, err)
	f.runContainers(ctx, mainExits)
	if _, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("the list of sandboxes: got %v, want one that cannot be sent", err)
	}
	logPartialLists(ctx, t, l)
	someOf := func(n, rest int, step func(context.Context, *lab.Pod) error) {
		t.Helper()
		f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			if i%n != rest {
				return nil
			}
			return step(ctx, p)
		})
	}
	someOf(2, 1, func(ctx context.Context, p *lab.Pod) error { return l.Trigger(ctx, oldest(p)) })
	someOf(4, 0, l.StopPod)
	kept := f.pods[1]
	f.pods = slices.Delete(f.pods, 1, 2)
	f.stopPods(ctx)
	f.removePods(ctx)
	f.pods = []*lab.Pod{kept}
	f.endFault()
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}

// logPartialLists logs how long lists in several parts take.
func logPartialLists(ctx context.Context, t *testing.T, l *lab.Lab) {
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
	t.Logf("lists in several parts took %v; degraded: %v", took, client.Degraded())
}

// manyPods starts, ends, stops and removes as many pods at once as the runtime
// can, and awaits each step.
func manyPods(ctx context.Context, f *fixture) {
	const pods = 200
	t, l := f.t, f.lab
	f.beginFault(ctx)
	step := func(what string, do func(context.Context, int, *lab.Pod) error) {
		t.Helper()
		began := time.Now()
		must(t, f.concurrently(ctx, do))
		done := time.Now()
		took, err := f.awaitAllSince(ctx, done)
		must(t, err)
		t.Logf("%s took the runtime %v; all was known %v later", what, done.Sub(began).Round(time.Millisecond), took)
	}
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("many-", i), HostNetwork: i%4 != 0}
	}
	var err error
	f.pods, err = l.RunPods(ctx, specs)
	must(t, err)
	step("200 starts", func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, mainExits(i))
		return err
	})
	// All processes end at the same moment; containerd reports them one by one.
	for _, p := range f.pods {
		must(t, l.TriggerProcess(oldest(p)))
	}
	step("200 ends at one moment", func(ctx context.Context, _ int, p *lab.Pod) error { return l.AwaitDied(ctx, oldest(p)) })
	step("200 sandboxes stopped", func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) })
	kept := f.pods[0]
	f.pods = f.pods[1:]
	step("200 pods removed", func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) })
	f.pods = []*lab.Pod{kept}
	f.endFault()
	f.checkAfterFault(ctx, false)
	f.changePods(ctx)
}
