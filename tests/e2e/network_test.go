//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// Network events speak of pods with an address of their own: that it is there,
// or that it will not come. Of a pod whose network could not be made only the
// older runtime tells; containerd 2 forgets such a pod at once.
func TestNetworkEvents(t *testing.T) {
	ctx, l := startLab(t, lab.Debian)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{}, false)
	sub, err := p.Subscribe(pipeline.SubscribeOptions{
		Name: "network", NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed},
	})
	must(t, err)
	_, err = l.RunPod(ctx, lab.PodSpec{Name: "host", HostNetwork: true})
	must(t, err)
	good, err := l.RunPod(ctx, lab.PodSpec{Name: "good"})
	must(t, err)
	must(t, next(ctx, sub, pleg.NetworkSetupCompleted, good.UID))

	must(t, l.BreakNetwork(ctx))
	bad := lab.PodSpec{Name: "bad", UID: "c0ffee00-0000-4000-8000-000000000000"}
	if _, err := l.RunPod(ctx, bad); err == nil {
		t.Fatal("a pod was made although its network cannot be")
	}
	must(t, next(ctx, sub, pleg.NetworkFailed, bad.UID))
	must(t, await(ctx, l, bad.UID, seen))
	must(t, l.RepairNetwork(ctx))
}

// next wants this event of this pod next.
func next(ctx context.Context, sub *pipeline.Subscription, want pleg.EventType, uid string) error {
	late := time.NewTimer(stepTimeout)
	defer late.Stop()
	select {
	case ev := <-sub.Events():
		if ev.Type != want || string(ev.PodUID) != uid {
			return fmt.Errorf("got %s of pod %s, want %s of %s", describe(ev), ev.PodUID, want, uid)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("got nothing, want %s of pod %s", want, uid)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
