//go:build linux

package lab_test

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// remains returns everything on this machine that is named after a lab.
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
			ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			l, err := lab.Start(ctx, lab.Options{})
			must(t, err)
			defer func() { must(t, l.Stop(ctx)) }()
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
		})
	}
}
