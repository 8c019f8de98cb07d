//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The doctor names a shim that is stopped and its container that the runtime calls running although
// its cgroup has no process, and nothing before.
func TestDoctorNamesContainerWithoutProcess(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "web-0", Namespace: "shop", HostNetwork: true})
	must(t, err)
	var containers []*lab.Container
	for _, name := range []string{"nginx", "sidecar"} {
		containers = append(containers, f.runContainer(ctx, pod, lab.ContainerSpec{Name: name, Program: lab.Pause()}))
	}
	const finding, ended = "PROBLEM: shop/web-0 has a hung shim for at least ", "is stopped by a signal; nginx has ended, and the runtime calls it running\n"
	if report, _ := examine(ctx, t, f.lab); strings.Contains(report, "has a hung shim") {
		t.Errorf("all containers have processes, and the doctor says\n%s", report)
	}
	must(t, f.lab.FreezeShim(ctx, pod))
	must(t, f.lab.KillProcess(ctx, containers[0]))
	report, code := examine(ctx, t, f.lab)
	must(t, f.lab.ThawShim(pod))
	if code != 3 || !strings.HasPrefix(report, finding) || !strings.Contains(report, ended) {
		t.Errorf("exit code %d, want 3 and first %q:\n%s", code, finding+ended, report)
	}
}

// examine returns what the doctor reports about a runtime, and its exit code.
func examine(ctx context.Context, t *testing.T, l *lab.Lab) (report string, code int) {
	t.Helper()
	path, err := buildRelease()
	must(t, err)
	out, err := exec.CommandContext(ctx, path, "doctor", "--runtime-endpoint", l.Endpoint()).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	must(t, err)
	return string(out), 0
}
