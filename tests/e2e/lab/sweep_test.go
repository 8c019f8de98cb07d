//go:build linux

package lab_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// start runs a lab until the test ends, also by Ctrl-C.
func start(t *testing.T) (context.Context, *lab.Lab) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	return ctx, l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// killedEnv makes this test binary run a lab until it is killed.
const killedEnv = "PLEG_LAB_KILLED"

// remains returns everything on this machine that has the name of a lab.
func remains(t *testing.T, dir string) []string {
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
	for name, before := range map[string]func(*lab.Lab){"the runtime runs": func(*lab.Lab) {}, "the runtime crashed": (*lab.Lab).Crash} {
		t.Run(name, func(t *testing.T) {
			ctx, l := start(t)
			dir := filepath.Dir(strings.TrimPrefix(l.Endpoint(), "unix://"))
			pods, err := l.RunPods(ctx, []lab.PodSpec{{Name: "a"}, {Name: "b"}})
			must(t, err)
			for _, p := range pods {
				_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
				must(t, err)
			}
			if len(remains(t, dir)) < 5 {
				t.Fatalf("a running lab has only %q", remains(t, dir))
			}
			before(l)
			must(t, l.Stop(ctx))
			if left := remains(t, dir); len(left) != 0 {
				t.Errorf("after Stop there are %q", left)
			}
			must(t, l.Stop(ctx))
		})
	}
}

func TestSweepRemovesLabOfKilledProcess(t *testing.T) {
	if os.Getenv(killedEnv) != "" {
		runUntilKilled(t)
		return
	}
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), killedEnv+"=1")
	stdout, err := process.StdoutPipe()
	must(t, err)
	must(t, process.Start())
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	must(t, process.Process.Kill())
	_ = process.Wait()
	must(t, readErr)
	dir := filepath.Dir(strings.TrimPrefix(strings.TrimSpace(line), "unix://"))
	if len(remains(t, dir)) < 5 {
		t.Fatalf("%q has only %q", dir, remains(t, dir))
	}

	_, l := start(t) // in use: Sweep must not remove it
	must(t, lab.Sweep(t.Context()))
	if left := remains(t, dir); len(left) != 0 {
		t.Errorf("after Sweep there are %q", left)
	}
	if _, err := l.RunPod(t.Context(), lab.PodSpec{Name: "a"}); err != nil {
		t.Errorf("the lab in use: %v", err)
	}
}

func runUntilKilled(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Options{})
	must(t, err)
	pod, err := l.RunPod(t.Context(), lab.PodSpec{Name: "a"})
	must(t, err)
	_, err = l.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	fmt.Println(l.Endpoint())
	<-context.Background().Done() // until killed
}
