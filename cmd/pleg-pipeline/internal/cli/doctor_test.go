package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
)

// TestDoctorOfWellRuntime examines until it is well: it takes milliseconds, but on
// a machine that is busy the runtime may really be slow.
func TestDoctorOfWellRuntime(t *testing.T) {
	for try := 1; ; try++ {
		code, stdout, stderr := run(t, "doctor", "--simulate=3", "--churn-rate", "0")
		if code == cli.ExitOK && strings.Contains(stdout, "Healthy: no known cause") && strings.Contains(stdout, "ContainerStatus   6 ") {
			return
		}
		if !strings.Contains(stdout, "runtime slow") || try == 30 {
			t.Fatalf("exit code %d, output %q, stderr %q, want it to be well", code, stdout, stderr)
		}
	}
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

// TestDoctorOfSilentRuntime examines one that accepts and never answers.
func TestDoctorOfSilentRuntime(t *testing.T) {
	t.Parallel()
	_, path := listen(t)
	code, stdout, _ := run(t, "doctor", "-r", path, "--call-timeout", "200ms")
	if code != cli.ExitUnhealthy || !strings.Contains(stdout, "PROBLEM: runtime hangs") {
		t.Errorf("exit code %d, output %q, want that the runtime hangs", code, stdout)
	}
}
