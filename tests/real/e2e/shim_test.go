//go:build linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// foundWithin is how long the daemon may take to find a trouble that no CRI call shows.
const foundWithin = 10 * time.Second

// The daemon names a shim that is stopped, its container that ended meanwhile, and a runtime that
// is stopped, with the command that helps. That command ends the finding.
func TestStoppedProcessesAreNamed(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "web-0", Namespace: "shop", HostNetwork: true})
	must(t, err)
	f.pods = append(f.pods, pod)
	nginx := f.runContainer(ctx, pod, lab.ContainerSpec{Name: "nginx", Program: lab.Pause()})
	in := f.run(ctx, instanceOptions{name: "daemon", settings: rareLists})
	must(t, in.awaitHealth(ctx))
	says := func(within time.Duration, parts ...string) {
		t.Helper()
		began := time.Now()
		err := await(ctx, func() error {
			s, err := in.status(ctx)
			if err != nil {
				return err
			}
			text := verdict.Of(s).Text
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return fmt.Errorf("no %q in %s", part, text)
				}
			}
			return nil
		})
		if took := time.Since(began); err != nil || took > within {
			t.Errorf("after %v: %v", took, err)
		}
	}
	const hung = "shop/web-0 has a hung shim since"
	says(stepTimeout, "OK: the node is healthy")
	// The container lives.
	must(t, f.lab.FreezeShim(ctx, pod))
	says(foundWithin, hung, "is stopped by a signal")
	must(t, f.lab.ThawShim(pod))
	says(foundWithin, "OK: the node is healthy")
	// It ends, and nobody learns that.
	must(t, f.lab.FreezeShim(ctx, pod))
	must(t, f.lab.KillProcess(ctx, nginx))
	says(foundWithin, hung, "is stopped by a signal; nginx has ended, and the runtime calls it running")
	must(t, f.lab.ThawShim(pod))
	must(t, f.lab.AwaitDied(ctx, nginx))
	says(foundWithin, "OK: the node is healthy")
	must(t, f.lab.Freeze(ctx))
	says(foundWithin, "PROBLEM: the list of all pods hangs", "containerd, PID", "is stopped by a signal")
	must(t, f.lab.Thaw())
	says(3*time.Second, "OK: the node is healthy")
}
