//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// foundWithin is how long the daemon may take to find a trouble that no CRI call shows.
const foundWithin = 10 * time.Second

// onePod runs a pod with a container and a daemon that has looked at its processes. says fails the
// test unless the verdict of the daemon contains these parts within a time. The runtime uses a disk
// of its own, of this size: the machine's disk may be almost full.
func onePod(t *testing.T, disk int64) (ctx context.Context, f *fixture, nginx *lab.Container, says func(within time.Duration, parts ...string)) {
	t.Helper()
	ctx, f = newFixture(t, lab.Options{DiskSize: disk})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "web-0", Namespace: "shop", HostNetwork: true})
	must(t, err)
	f.pods = append(f.pods, pod)
	nginx = f.runContainer(ctx, pod, lab.ContainerSpec{Name: "nginx", Program: lab.Pause()})
	in := f.run(ctx, instanceOptions{name: "daemon", settings: rareLists})
	must(t, in.awaitHealth(ctx))
	says = func(within time.Duration, parts ...string) {
		t.Helper()
		began := time.Now()
		text := ""
		err := await(ctx, func() error {
			s, err := in.status(ctx)
			if err != nil {
				return err
			}
			text = verdict.Of(s).Text
			for _, part := range parts {
				if !strings.Contains(text, part) {
					return fmt.Errorf("no %q in %s", part, text)
				}
			}
			return nil
		})
		took := time.Since(began)
		if err != nil || took > within {
			t.Errorf("after %v: %v", took, err)
		}
		if within > time.Second {
			t.Logf("FIGURE after %v: %s", took.Round(time.Millisecond), text)
		}
	}
	says(stepTimeout, healthy)
	must(t, backoff.Wait(ctx, 3*time.Second)) // three looks
	return ctx, f, nginx, says
}

// smallDisk is enough for a pod.
const smallDisk = 64 << 20

const healthy = "OK: the node is healthy"

// If the monitor of a container is killed, CRI-O never learns its end. The daemon and the doctor
// name that container. The doctor's advice ends the finding, although each status of the container
// then takes seconds.
func TestKilledMonitorIsNamed(t *testing.T) {
	if lab.DefaultRuntime().Traits().Shims {
		t.Fatal("containerd ends the containers of a killed shim: this is a test of make e2e-crio")
	}
	ctx, f, nginx, says := onePod(t, smallDisk)
	if report, _ := examine(ctx, t, f.lab); strings.Contains(report, "web-0 has") {
		t.Errorf("nothing is wrong with the pod, and the doctor says\n%s", report)
	}
	must(t, f.lab.KillMonitor(f.pods[0]))
	says(foundWithin, "PROBLEM: shop/web-0 has no shim")
	later := f.run(ctx, instanceOptions{name: "started later", settings: rareLists})
	must(t, await(ctx, func() error {
		s, err := later.status(ctx)
		if v := verdict.Of(s); err != nil || !strings.HasPrefix(v.Text, "PROBLEM: shop/web-0 has no shim") {
			return fmt.Errorf("a daemon that began later says %s, %w", v.Text, err)
		}
		return nil
	}))
	if report, code := examine(ctx, t, f.lab); code != 3 || !strings.HasPrefix(report, "PROBLEM: shop/web-0 has no shim") {
		t.Errorf("the doctor says %s", report)
	}
	must(t, f.lab.KillProcess(ctx, nginx))
	began := time.Now()
	report, code := examine(ctx, t, f.lab)
	took := time.Since(began)
	t.Logf("FIGURE the doctor took %v:\n%s", took.Round(time.Millisecond), report)
	for _, part := range []string{"WARNING: shop/web-0 has a container without a process", "crictl -t 1m stop " + nginx.ID} {
		if code != 0 || !strings.Contains(report, part) || took > 15*time.Second {
			t.Errorf("after %v: exit code %d, want 0 and %q:\n%s", took, code, part, report)
		}
	}
	says(foundWithin, "WARNING: shop/web-0 has a container without a process since")
	later = f.run(ctx, instanceOptions{name: "started after the end", settings: rareLists})
	must(t, await(ctx, func() error {
		s, err := later.status(ctx)
		if v := verdict.Of(s); err != nil || !strings.HasPrefix(v.Text, "WARNING: shop/web-0 has a container without a process") {
			return fmt.Errorf("a daemon that began after the end says %s, %w", v.Text, err)
		}
		return nil
	}))
	must(t, backoff.Wait(ctx, time.Minute))
	says(time.Second, "PROBLEM: shop/web-0 has a container without a process since")
	_, err := f.lab.Runtime().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: nginx.ID})
	must(t, err)
	says(2*foundWithin, healthy) // CRI-O takes 3.7 s for the status
	for range 10 {               // inspections that took long are over
		must(t, backoff.Wait(ctx, time.Second))
		says(time.Second, healthy)
	}
}

// A shim or monitor in a frozen cgroup is named: with cgroup v1 at once, with v2 once one of its containers
// has ended, because nothing shows it before. A doctor that begins later reports the same.
func TestFrozenCgroupIsNamed(t *testing.T) {
	t.Parallel()
	ctx, f, nginx, says := onePod(t, smallDisk)
	finding := []string{"PROBLEM: shop/web-0 has a hung shim since", "waits in the kernel, state D"}
	examined := func() {
		report, code := examine(ctx, t, f.lab)
		for _, part := range []string{"PROBLEM: shop/web-0 has a hung shim", finding[1], "its cgroup is frozen"} {
			if code != 3 || !strings.Contains(report, part) {
				t.Errorf("exit code %d, want 3 and %q:\n%s", code, part, report)
			}
		}
	}
	if lab.HasCgroupV1() {
		must(t, f.lab.FreezeCgroup(ctx, f.pods[0], true))
		says(foundWithin, finding...)
		examined()
		must(t, f.lab.ThawCgroup())
		says(foundWithin, healthy)
	}
	must(t, f.lab.FreezeCgroup(ctx, f.pods[0], false))
	must(t, f.lab.KillProcess(ctx, nginx))
	says(foundWithin, append(finding, "nginx has ended, and the runtime calls it running")...)
	examined()
	must(t, f.lab.ThawCgroup())
	must(t, f.lab.AwaitDied(ctx, nginx))
	says(foundWithin, healthy)
}

const (
	// saidWithin is how long the daemon may take to report the runtime's conditions, which it reads every 10
	// s, and the size of its lists, which it reads once a minute.
	saidWithin, sizedWithin = 15 * time.Second, 70 * time.Second
	// largePods with annotations as large as an API server accepts take over 60 % of a list.
	largePods, largePod = 42, 250 << 10
)

// The daemon and a doctor that begins later report the runtime's conditions, and lists that become too large, in
// the same words.
func TestTroublesOfTheRuntimeAreNamed(t *testing.T) {
	t.Parallel()
	ctx, f, _, says := onePod(t, 1<<30)
	same := func(parts ...string) {
		report, _ := examine(ctx, t, f.lab)
		for _, part := range parts {
			if !strings.Contains(report, part) {
				t.Errorf("the doctor does not say %q:\n%s", part, report)
			}
		}
	}
	if f.lab.Traits().Shims { // CRI-O keeps the network that it has read
		must(t, f.lab.RemoveNetwork())
		says(saidWithin, "PROBLEM: the network of the runtime is not ready since", "cni plugin not initialized")
		same("PROBLEM: the network of the runtime is not ready", "cni plugin not initialized")
		must(t, f.lab.RepairNetwork(ctx))
		says(saidWithin, healthy)
	}
	specs := make([]lab.PodSpec, largePods)
	for n := range specs {
		specs[n] = lab.PodSpec{Name: fmt.Sprint("large-", n), Namespace: "shop", HostNetwork: true, Annotations: map[string]string{"large": strings.Repeat("x", largePod)}}
	}
	large, err := f.lab.RunPods(ctx, specs)
	must(t, err)
	// A runtime with such lists may be slow too, so that the finding need not be the first.
	sized := func(want bool) {
		t.Helper()
		found := func() bool {
			s, err := f.instances[0].status(ctx)
			return err == nil && want == slices.ContainsFunc(verdict.Of(s).Findings, func(v verdict.Finding) bool {
				return v.Cause == verdict.ListTooLarge && v.Subject == "the list of sandboxes" && strings.Contains(v.Detail, "the largest pods in it: shop/large-")
			})
		}
		for deadline := time.Now().Add(sizedWithin); !found(); must(t, backoff.Wait(ctx, time.Second)) {
			if time.Now().After(deadline) {
				t.Fatalf("the list is too large: not %t after %v", want, sizedWithin)
			}
		}
	}
	sized(true)
	same("the list of sandboxes is almost too large", "the largest pods in it: shop/large-")
	for _, p := range large {
		must(t, f.lab.RemovePod(ctx, p))
	}
	sized(false)
}
