package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// quiet matches an empty output, or the notice of "pods" on a busy machine.
var quiet = regexp.MustCompile(`^(pleg-pipeline: WARNING: the runtime is slow [^\n]*\n)?$`)

// TestHabitsOfKubectl runs commands as users of kubectl type them. Each command ends by itself.
func TestHabitsOfKubectl(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	const names = `^([a-z]+/[a-z0-9-]+\n)`
	for _, test := range []struct{ args, want string }{
		{"pods -A -n nowhere -o name", names + "{2}$"},
		{"pods --sort-by=age -o name", names + "{2}$"},
		{"pods -A", `^NAMESPACE +POD .*\n([a-z-]+ +[a-z0-9-]+ +ready +2/2 +0 +[0-9.]+m?s +[0-9.]+m?s\n){2}$`},
		{"pods -o json", `^({"uid":.*"total":2,.*"currentAsOf":".*\n){2}$`},
		{"events -A --since 10m --follow=false --no-sandboxes -o name", names + "{4}$"},
		{"events --replay -f=false --no-sandboxes -o name", names + "{4}$"},
		{"events --since 0s -f=false -o name", "^$"},
		{"events -f=false -o name", "^$"},
		{"events --replay -f=false -l app --type containerdied -o name", "^$"},
	} {
		args := append(strings.Fields(test.args), "--connect", socket)
		if code, stdout, stderr := run(t, args...); code != cli.ExitOK || !quiet.MatchString(stderr) || !regexp.MustCompile(test.want).MatchString(stdout) {
			t.Errorf("%s = %d %q and stderr %q, want %s", test.args, code, stdout, stderr, test.want)
		}
	}
	for args, want := range map[string]string{ // unlike kubectl, which exits with 0
		"pods -n nowhere --no-headers":               "no pod is in the namespace nowhere\n",
		"pods -l app=none":                           "no pod matches the selector app=none\n",
		"events --replay --follow=false -l app=none": "no pod matches the selector app=none\n",
		"pods -n nowhere -l app=none":                "no pod in the namespace nowhere matches the selector app=none\n",
	} {
		if code, _, stderr := run(t, append(strings.Fields(args), "--connect", socket)...); code != cli.ExitFailure || !strings.HasSuffix(stderr, want) {
			t.Errorf("%s = %d and stderr %q, want %q", args, code, stderr, want)
		}
	}
	code, stdout, _ := run(t, "version", "-o", "json")
	if want := regexp.MustCompile(`^\{"commit":".*","goVersion":"go.+","platform":".+/.+","version":".+"\}\n$`); code != cli.ExitOK || !want.MatchString(stdout) {
		t.Errorf("version -o json = %d %q, want %v", code, stdout, want)
	}
}

// TestPodsBeginWithTheTable: notices follow the table, also those about the command's own pipeline.
func TestPodsBeginWithTheTable(t *testing.T) {
	t.Parallel()
	all := newTranscript()
	code := cli.Execute(t.Context(), cli.Process{Args: []string{"pods", "-r", simulated(t, 3)}, Out: all, Err: all})
	text := all.String()
	if code != cli.ExitOK || !strings.HasPrefix(text, "NAMESPACE") || strings.Count(text, " 2/2 ") != 3 || !strings.Contains(text, "connected to") {
		t.Errorf("exit code %d and %q, want the table first", code, text)
	}
}
