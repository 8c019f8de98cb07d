//go:build linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// Every output about health reports the same about real processes within ten seconds: the same cause, subject,
// severity and beginning, and the process. The advised command ends the trouble. The other troubles and surfaces are
// in TestEverySurfaceSaysTheSame.
func TestSurfacesOfRealTroubles(t *testing.T) {
	ctx, f, nginx, says := onePod(t, smallDisk)
	pod, daemon := f.pods[0], f.instances[0]
	file := socket(f.lab)
	const stoppedBy = "is stopped by a signal"
	var began time.Time
	agent := f.run(ctx, instanceOptions{name: "agent", settings: withEvents})
	must(t, agent.awaitHealth(ctx))
	if report, _ := examine(ctx, t, f.lab); strings.Contains(report, "has a hung shim") {
		t.Errorf("nothing is wrong, and the doctor says\n%s", report)
	}
	for _, trouble := range []struct {
		name       string
		begin, end func() error
		cause      verdict.Cause
		subject    string
		detail     string
	}{
		{"frozen shim", func() error { return f.lab.FreezeShim(ctx, pod) }, func() error { return f.lab.ThawShim(pod) }, verdict.HungShim, "shop/web-0", stoppedBy},
		{"frozen later", func() error { return f.lab.Freeze(ctx) }, f.lab.Thaw, verdict.RuntimeHangs, "the runtime", fmt.Sprintf("PID %d, ", f.lab.PID()) + stoppedBy},
		{
			"frozen, with a full disk", func() error {
				must(t, f.lab.FillDisk())
				began = time.Now() // another fault than the disk must be found
				return f.lab.Freeze(ctx)
			},
			func() error { return errors.Join(f.lab.Thaw(), f.lab.FreeDisk()) }, verdict.RuntimeHangs, "the runtime", fmt.Sprintf("PID %d, ", f.lab.PID()) + stoppedBy,
		},
		{"socket gone", func() error { return os.Rename(file, file+".gone") }, func() error { return os.Rename(file+".gone", file) }, verdict.Fallback, "the runtime", "is gone"},
		{"killed", func() error { f.lab.Crash(); return nil }, func() error { return f.lab.Revive(ctx) }, verdict.RuntimeStopped, "the runtime", "is stopped"},
		{"disk full", f.lab.FillDisk, f.lab.FreeDisk, verdict.Disk, filepath.Join(filepath.Dir(file), "root"), "is almost full"},
		{
			"unread events", func() error {
				agent.paused.from = time.Now()
				return errors.Join(agent.Pause(), f.lab.StopContainer(ctx, f.runContainer(ctx, pod, lab.ContainerSpec{Name: "side", Program: lab.Pause()})))
			}, func() error {
				agent.paused.to = time.Now()
				return agent.Continue()
			}, verdict.ClientNotReading, "pleg-pipeline", fmt.Sprintf("PID %d, ", agent.PID()) + stoppedBy,
		},
		{
			"hung shim", func() error { return errors.Join(f.lab.FreezeShim(ctx, pod), f.lab.KillProcess(ctx, nginx)) },
			func() error { return errors.Join(f.lab.ThawShim(pod), f.lab.AwaitDied(ctx, nginx)) }, verdict.HungShim, "shop/web-0",
			stoppedBy + "; nginx has ended, and the runtime calls it running",
		},
	} {
		began = time.Now()
		must(t, trouble.begin())
		says(foundWithin, "PROBLEM: "+trouble.subject, trouble.detail)
		if took := time.Since(began); took > foundWithin {
			t.Errorf("%s: known after %v", trouble.name, took)
		}
		known, err := daemon.status(ctx)
		must(t, err)
		want := verdict.Of(known).Findings[0]
		if want.Cause != trouble.cause || want.Since.Before(began.Add(-time.Second)) || want.Since.After(began.Add(foundWithin)) {
			t.Errorf("%s: %s since %v, want %s since %v", trouble.name, want.Cause, want.Since, trouble.cause, began)
		}
		said := findings(ctx, t, daemon, f.lab)
		said["the page"] = first(t, "the page", get(ctx, daemon, "/stages"))
		for surface, got := range said {
			if got.Cause != want.Cause || got.Severity != want.Severity || got.Subject != want.Subject ||
				surface != "doctor alone" && !got.Since.Equal(want.Since) || !strings.Contains(got.Summary, trouble.detail) {
				t.Errorf("%s: %s says %s: %s of %q since %v: %s\nwant %s: %s of %q since %v", trouble.name, surface,
					got.Severity, got.Cause, got.Subject, got.Since, got.Summary, want.Severity, want.Cause, want.Subject, want.Since)
			}
		}
		begin := fmt.Sprintf("PROBLEM: %s %s since ", want.Subject, want.What)
		for surface, text := range texts(ctx, t, daemon) {
			if !strings.Contains(text, begin) {
				t.Errorf("%s: %s says %q, want %q", trouble.name, surface, text, begin)
			}
		}
		labels := fmt.Sprintf(`pleg_verdict_since_seconds{cause="%s",level="%s"} `, want.Cause, want.Severity)
		_, rest, _ := strings.Cut(get(ctx, daemon, "/metrics"), labels)
		line, _, _ := strings.Cut(rest, "\n")
		if seconds, err := strconv.ParseFloat(line, 64); err != nil || time.UnixMilli(int64(seconds*1000)).Sub(want.Since).Abs() > time.Second {
			t.Errorf("%s: the metric %s is %q, want %v", trouble.name, labels, line, want.Since)
		}
		begins := regexp.MustCompile(`trouble begins" severity=problem cause="?` + string(want.Cause) + `"? since=` + want.Since.UTC().Format("2006-01-02T15:04:05"))
		if err := eventually(ctx, func() bool { return begins.MatchString(daemon.Tail()) }); err != nil {
			t.Errorf("%s: the log has no %v: %v", trouble.name, begins, err)
		}
		must(t, trouble.end())
		over := foundWithin
		if trouble.name == "frozen later" {
			over = 3 * time.Second
		}
		says(over, healthy)
	}
	// A daemon that is stopped does not read the events of the runtime.
	must(t, daemon.Pause())
	from := time.Now()
	must(t, f.lab.StopPod(ctx, pod))
	report, _ := program(ctx, "doctor", "-o", "json", "--connect", daemon.Socket)
	silent := first(t, "doctor", report)
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", f.lab.Endpoint())
	report, _ = program(ctx, "doctor", "--connect", daemon.Socket)
	_, err := program(ctx, "pods", "--connect", daemon.Socket)
	daemon.paused = outage{from, time.Now()}
	must(t, daemon.Continue())
	stopped := fmt.Sprintf("its process %d is stopped (state T)", daemon.PID())
	if silent.Cause != verdict.DaemonSilent || !strings.Contains(silent.Summary, stopped) || !strings.Contains(silent.Advice, fmt.Sprintf("kill -CONT %d", daemon.PID())) {
		t.Errorf("the daemon is stopped: the doctor says %s: %s; %s", silent.Cause, silent.Summary, silent.Advice)
	}
	if want := "PROBLEM: the daemon at " + daemon.Socket + " does not answer: " + stopped + ", and the runtime waits for it to read events"; f.lab.Traits().Shims && !strings.HasPrefix(report, want) {
		t.Errorf("the doctor says %s\nwant %s", report, want)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(exit.Stderr), stopped) {
		t.Errorf("the daemon is stopped: pods says %v", err)
	}
	says(foundWithin, healthy)
	for line, want := range map[string]int{`begins" severity=problem cause="hung shim"`: 2, `ended" cause="hung shim"`: 2, `begins" severity=problem cause="container without process"`: 0} {
		if err := eventually(ctx, func() bool {
			text, err := os.ReadFile(daemon.Log)
			return err == nil && strings.Count(string(text), "trouble "+line) == want
		}); err != nil {
			t.Errorf("the log has not %d lines of trouble %s: %v", want, line, err)
		}
	}
}

// program runs the program and returns its output.
func program(ctx context.Context, args ...string) (string, error) {
	path, err := process.Program(static)
	if err != nil {
		return "", err
	}
	return process.Output(ctx, path, args...)
}

// examine returns the doctor's report about a runtime, and the exit code.
func examine(ctx context.Context, t *testing.T, l *lab.Lab) (report string, code int) {
	t.Helper()
	report, err := program(ctx, "doctor", "--runtime-endpoint", l.Endpoint())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return report, exit.ExitCode()
	}
	must(t, err)
	return report, 0
}

// findings returns the first finding of the doctor.
func findings(ctx context.Context, t *testing.T, daemon *instance, l *lab.Lab) map[string]verdict.Finding {
	t.Helper()
	all := make(map[string]verdict.Finding)
	for surface, args := range map[string][]string{"doctor": {"--connect", daemon.Socket}, "doctor alone": {"-r", l.Endpoint()}} {
		text, _ := program(ctx, append([]string{"doctor", "-o", "json"}, args...)...) // 3 for a problem
		all[surface] = first(t, surface, text)
	}
	return all
}

// first returns the first finding of a report, or of the verdict of the page.
func first(t *testing.T, surface, text string) verdict.Finding {
	t.Helper()
	type report struct{ Findings []verdict.Finding }
	var of report
	var page struct{ Verdict report }
	if json.Unmarshal([]byte(text), &of) != nil || len(of.Findings) == 0 {
		_ = json.Unmarshal([]byte(text), &page) // the verdict of the doctor is a text
		of = page.Verdict
	}
	if len(of.Findings) == 0 {
		t.Errorf("%s has no finding: %s", surface, text)
		return verdict.Finding{}
	}
	return of.Findings[0]
}

// texts returns the outputs for people.
func texts(ctx context.Context, t *testing.T, daemon *instance) map[string]string {
	t.Helper()
	path, err := process.Program(static)
	must(t, err)
	pods, _ := exec.CommandContext(ctx, path, "pods", "--connect", daemon.Socket).CombinedOutput()
	return map[string]string{"pods": strings.Join(strings.Fields(string(pods)), " "), "readyz": get(ctx, daemon, "/readyz?verbose")}
}

// get returns an answer of the daemon, whatever its status.
func get(ctx context.Context, daemon *instance, path string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	text, _ := process.Get(ctx, client, daemon.URL+path)
	return text
}
