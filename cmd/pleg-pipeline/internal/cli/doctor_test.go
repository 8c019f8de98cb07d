package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
)

// TestDoctorOfHealthyRuntime repeats the examination while the runtime is slow: it
// takes milliseconds, except on a busy machine.
func TestDoctorOfHealthyRuntime(t *testing.T) {
	for try := 1; ; try++ {
		code, stdout, stderr := runDoctor(t, "0.00")
		if code == cli.ExitOK && strings.Contains(stdout, "Healthy: no known cause") && strings.Contains(stdout, "ContainerStatus   6 ") {
			return
		}
		if !strings.Contains(stdout, "runtime slow") || try == 30 {
			t.Fatalf("exit code %d, output %q, stderr %q, want a healthy runtime", code, stdout, stderr)
		}
	}
}

// A busy disk is a warning: the exit code stays 0.
func TestDoctorReportsDiskPressure(t *testing.T) {
	for try := 1; ; try++ {
		code, stdout, _ := runDoctor(t, "61.00")
		if code == cli.ExitOK && strings.Contains(stdout, "WARNING: disk") {
			return
		}
		if !strings.Contains(stdout, "runtime slow") || try == 30 {
			t.Fatalf("exit code %d, output %q, want a warning about the disk", code, stdout)
		}
	}
}

// runDoctor examines a simulated runtime on a node with this disk pressure.
func runDoctor(t *testing.T, disk string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Execute(t.Context(), cli.Process{
		Args: []string{"doctor", "--simulate=3", "--churn-rate", "0"}, Out: &out, Err: &errs,
		Getenv:   func(string) string { return "" },
		Pressure: fstest.MapFS{"io": {Data: []byte("some avg10=" + disk + " avg60=0.00 avg300=0.00 total=1\n")}},
	})
	return code, out.String(), errs.String()
}

func TestDoctorOfNoRuntime(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "doctor", "-r", "/nonexistent/s", "-o", "json")
	var r doctor.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || len(r.Findings) != 1 || r.Findings[0].Cause != doctor.RuntimeStopped {
		t.Errorf("output %q, %v, want that the runtime is stopped", stdout, err)
	}
	if code != cli.ExitUnhealthy || stderr != "" {
		t.Errorf("exit code %d and stderr %q, want %d and nothing", code, stderr, cli.ExitUnhealthy)
	}
}

// TestDoctorOfHungRuntime examines a socket that accepts and never answers.
func TestDoctorOfHungRuntime(t *testing.T) {
	t.Parallel()
	_, path := listen(t)
	code, stdout, _ := run(t, "doctor", "-r", path, "--call-timeout", "200ms")
	if code != cli.ExitUnhealthy || !strings.Contains(stdout, "PROBLEM: runtime hangs") {
		t.Errorf("exit code %d, output %q, want that the runtime hangs", code, stdout)
	}
}
