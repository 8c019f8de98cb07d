package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestDoctorAsPlugin requires one line, and the exit codes of the node-problem-detector.
func TestDoctorAsPlugin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no problem": {[]string{"--simulate=3", "--churn-rate", "0", "--call-timeout", "20s"}, 0, "OK: "},
		"a problem":  {[]string{"-r", "/nonexistent/s"}, 1, "PROBLEM: the runtime is stopped: "},
		"unknown":    {[]string{"--config", "/nonexistent/c"}, 2, "could not examine the node: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, _ := run(t, append([]string{"doctor", "--npd"}, test.args...)...)
			ok := code == test.code && strings.HasPrefix(stdout, test.want) || test.code == 0 && isSlow(stdout)
			if !ok || strings.Count(stdout, "\n") != 1 {
				t.Errorf("exit code %d, output %q, want %d and one line %q", code, stdout, test.code, test.want)
			}
		})
	}
}

// isSlow reports whether the doctor found that the runtime is slow: on a busy machine, the
// simulated one may be.
func isSlow(report string) bool {
	verdict, _, _ := strings.Cut(report, "\n")
	return strings.Contains(verdict, " takes ") || strings.Contains(verdict, " take ") || strings.Contains(verdict, "waited for the disk")
}

// TestDoctorMeasuresCalls requires a table, and the same as JSON.
func TestDoctorMeasuresCalls(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": "| ContainerStatus | 16 |", "json": `"method": "ContainerStatus"`} {
		code, stdout, stderr := run(t, "doctor", "--simulate=3", "--churn-rate", "0", "--calls", "10ms", "-o", format)
		if code != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, output %q, stderr %q, want %q", code, stdout, stderr, want)
		}
	}
}

// TestPluginConfiguration requires that the example for the node-problem-detector calls
// the doctor with flags that exist.
func TestPluginConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/node-problem-detector.json")
	kit.Must(t, err)
	var config struct {
		Rules []struct{ Args []string }
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Rules) != 1 {
		t.Fatalf("%v, %d rules, want one", err, len(config.Rules))
	}
	code, stdout, _ := run(t, append(config.Rules[0].Args, "-r", "/nonexistent/s")...)
	if code != 1 || !strings.HasPrefix(stdout, "PROBLEM: ") {
		t.Errorf("exit code %d, output %q, want a problem", code, stdout)
	}
}
