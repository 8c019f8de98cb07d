//go:build linux

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// start runs a lab until the test ends, also by Ctrl-C.
func start(t *testing.T, opts lab.Options) (context.Context, *lab.Lab) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, err := lab.Start(ctx, opts)
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

func TestHistoryHasTheEndOfEachContainer(t *testing.T) {
	ctx, l := start(t, lab.Options{})
	kill := func(c *lab.Container) error { return l.Kill(ctx, c) }
	trigger := func(c *lab.Container) error { return l.Trigger(ctx, c) }
	for _, tc := range []struct {
		name   string
		spec   lab.ContainerSpec
		end    func(*lab.Container) error
		code   int32
		reason string
	}{
		{"exit 0", lab.ContainerSpec{Program: lab.Exit(0)}, trigger, 0, "Completed"},
		{"exit 7", lab.ContainerSpec{Program: lab.Exit(7)}, trigger, 7, "Error"},
		{"exit by itself", lab.ContainerSpec{Program: lab.ExitAfter(3, 100*time.Millisecond)}, func(c *lab.Container) error { return l.AwaitDied(ctx, c) }, 3, "Error"},
		{"panic", lab.ContainerSpec{Program: lab.Panic()}, trigger, 2, "Error"},
		{"out of memory", lab.ContainerSpec{Program: lab.EatMemory(), MemoryLimit: 32 << 20}, trigger, 137, "OOMKilled"},
		{"kill", lab.ContainerSpec{Program: lab.Pause()}, kill, 137, "Error"},
		{"stop", lab.ContainerSpec{Program: lab.Pause()}, func(c *lab.Container) error { return l.StopContainer(ctx, c) }, 0, "Completed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod, err := l.RunPod(ctx, lab.PodSpec{Name: "ends"})
			must(t, err)
			tc.spec.Name = "main"
			c, err := l.RunContainer(ctx, pod, tc.spec)
			must(t, err)
			must(t, tc.end(c))
			must(t, l.RemoveContainer(ctx, c))
			must(t, l.RemovePod(ctx, pod))

			got := steps(l.History().Pod(pod.UID))
			want := []string{
				"sandbox Started", "main Created", "main Started",
				fmt.Sprintf("main Died %d %s", tc.code, tc.reason), "main Removed",
				"sandbox Died", "sandbox Removed",
			}
			if !slices.Equal(got, want) {
				t.Errorf("history:\ngot  %q\nwant %q", got, want)
			}
		})
	}
}

func steps(entries []lab.Entry) []string {
	var out []string
	for _, e := range entries {
		s := e.ContainerName + " " + string(e.Step)
		if e.Sandbox {
			s = "sandbox" + s
		} else if e.Step == lab.Died {
			s += fmt.Sprintf(" %d %s", e.ExitCode, e.Reason)
		}
		out = append(out, s)
	}
	return out
}

func TestHistoryAfterFreezeAndCrash(t *testing.T) {
	ctx, l := start(t, lab.Options{})
	pods, err := l.RunPods(ctx, []lab.PodSpec{{Name: "a"}, {Name: "b", HostNetwork: true}, {Name: "c", Foreign: true}})
	must(t, err)
	c, err := l.RunContainer(ctx, pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)

	must(t, l.Freeze(ctx))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := l.Runtime().Version(short, &runtimeapi.VersionRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a frozen containerd answers: %v", err)
	}
	must(t, l.Thaw())
	if _, err := l.Runtime().Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("after the thaw: %v", err)
	}

	l.Crash()
	must(t, l.KillProcess(ctx, c))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, c))
	must(t, l.KillSandbox(ctx, pods[1]))
	for _, p := range pods {
		must(t, l.RemovePod(ctx, p))
	}
	want := []string{"sandbox Started", "main Created", "main Started", "main Died 255 Unknown", "sandbox Died", "main Removed", "sandbox Removed"}
	if got := steps(l.History().Pod(pods[0].UID)); !slices.Equal(got, want) {
		t.Errorf("history:\ngot  %q\nwant %q", got, want)
	}
}

// containerd 1.6 has no event stream.
func TestDebianContainerdHasNoEvents(t *testing.T) {
	ctx, l := start(t, lab.Options{Release: lab.Debian})
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "old"})
	must(t, err)
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	must(t, err)
	must(t, l.Trigger(ctx, c))
	must(t, l.RemovePod(ctx, pod))

	stream, err := l.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	must(t, err)
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("events of %s: got %v, want Unimplemented", l.Version(), err)
	}
}

func TestStartRefusesUnknownRelease(t *testing.T) {
	_, err := lab.Start(t.Context(), lab.Options{Release: "newest"})
	if err == nil {
		t.Fatal("got no error")
	}
	if errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
