//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The doctor names a container that the runtime calls running although its cgroup has no
// process, and nothing before.
func TestDoctorNamesContainerWithoutProcess(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	path, err := buildRelease()
	must(t, err)
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "web-0", Namespace: "shop", HostNetwork: true})
	must(t, err)
	var containers []*lab.Container
	for _, name := range []string{"nginx", "sidecar"} {
		containers = append(containers, f.runContainer(ctx, pod, lab.ContainerSpec{Name: name, Program: lab.Pause()}))
	}
	finding := fmt.Sprintf("shop/web-0 (nginx %.13s): the runtime says that it runs, but its cgroup has no process", containers[0].ID)
	doctor := func() (report string, code int) {
		out, err := exec.CommandContext(ctx, path, "doctor", "--runtime-endpoint", f.lab.Endpoint()).Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		}
		must(t, err)
		return string(out), 0
	}
	if report, _ := doctor(); strings.Contains(report, "has no process") {
		t.Errorf("all containers have processes, and the doctor says\n%s", report)
	}
	must(t, f.lab.FreezeShim(ctx, pod))
	must(t, f.lab.KillProcess(ctx, containers[0]))
	report, code := doctor()
	must(t, f.lab.ThawShim(pod))
	if code != 3 || !strings.HasPrefix(report, "PROBLEM: "+finding+"\n") || strings.Contains(report, "(sidecar") {
		t.Errorf("exit code %d, want 3 and first %q:\n%s", code, finding, report)
	}
}
