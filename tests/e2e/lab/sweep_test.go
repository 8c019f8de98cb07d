//go:build linux

package lab_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// victimEnv makes this test binary run a lab until it is killed.
const victimEnv = "PLEG_LAB_VICTIM"

// traces returns everything on this machine that has the name of a lab.
func traces(t *testing.T, dir string) []string {
	t.Helper()
	name := filepath.Base(dir)
	bridge := "pleg" + strings.TrimPrefix(name, "pleg-lab-")
	var found []string
	for _, pattern := range []string{
		dir, "/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name,
		"/sys/class/net/" + bridge, "/var/lib/cni/results/" + name + "-*",
	} {
		paths, err := filepath.Glob(pattern)
		must(t, err)
		found = append(found, paths...)
	}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/self/mountinfo"} {
		paths, err := filepath.Glob(pattern)
		must(t, err)
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), dir) {
				found = append(found, path)
			}
		}
	}
	return found
}

func TestStopLeavesNothing(t *testing.T) {
	ctx, l := start(t, lab.Options{})
	dir := filepath.Dir(strings.TrimPrefix(l.Endpoint(), "unix://"))
	pods, err := l.RunPods(ctx, []lab.PodSpec{{Name: "a"}, {Name: "b"}})
	must(t, err)
	for _, p := range pods {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
		must(t, err)
	}
	if len(traces(t, dir)) < 5 {
		t.Fatalf("a running lab has only these traces: %q", traces(t, dir))
	}
	must(t, l.Stop(ctx))
	if left := traces(t, dir); len(left) != 0 {
		t.Errorf("after Stop there are %q", left)
	}
	must(t, l.Stop(ctx))
}

func TestStopOfCrashedContainerdLeavesNothing(t *testing.T) {
	ctx, l := start(t, lab.Options{})
	dir := filepath.Dir(strings.TrimPrefix(l.Endpoint(), "unix://"))
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "a"})
	must(t, err)
	_, err = l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	l.Crash()
	must(t, l.Stop(ctx))
	if left := traces(t, dir); len(left) != 0 {
		t.Errorf("after Stop there are %q", left)
	}
}

func TestSweepRemovesTheLabOfAKilledProcess(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		runVictim(t)
		return
	}
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), victimEnv+"=1")
	stdout, err := victim.StdoutPipe()
	must(t, err)
	must(t, victim.Start())
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	must(t, victim.Process.Kill())
	_ = victim.Wait()
	must(t, readErr)
	dir := filepath.Dir(strings.TrimPrefix(strings.TrimSpace(line), "unix://"))
	if len(traces(t, dir)) < 5 {
		t.Fatalf("%q has only these traces: %q", dir, traces(t, dir))
	}

	_, l := start(t, lab.Options{}) // a lab in use is left alone
	must(t, lab.Sweep(t.Context(), slog.New(slog.DiscardHandler)))
	if left := traces(t, dir); len(left) != 0 {
		t.Errorf("after Sweep there are %q", left)
	}
	if _, err := l.RunPod(t.Context(), lab.PodSpec{Name: "a"}); err != nil {
		t.Errorf("the lab in use: %v", err)
	}
}

func runVictim(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Options{})
	must(t, err)
	pod, err := l.RunPod(t.Context(), lab.PodSpec{Name: "a"})
	must(t, err)
	_, err = l.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	fmt.Println(l.Endpoint())
	<-context.Background().Done() // until killed
}
