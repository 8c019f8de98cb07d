package cli_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// printConfig runs "run --print-config" with an environment and a file.
func printConfig(t *testing.T, env map[string]string, file string, args ...string) (code int, out, errs string) {
	t.Helper()
	args = append([]string{"run", "--print-config"}, args...)
	if file != "" {
		path := filepath.Join(t.TempDir(), "file.yaml")
		kit.Must(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config-file", path)
	}
	return execute(t, with(env), args...)
}

func TestMisspeltVariables(t *testing.T) {
	for variable, ok := range map[string]bool{
		"PLEG_PIPELINE_RELIST_PERIOD=1s":                       true,
		"PLEG_PIPELINE_RELIST_PERIODE=1s":                      false,
		"PLEG_PIPELINE_relist-period=1s":                       false,
		"PLEG_PIPELINE_HELP=1":                                 false,
		"PLEG_PIPELINE_PRINT_CONFIG=1":                         false,
		"PLEG_PIPELINE_CONFIG_FILE=/etc/f":                     true,
		"PLEG_PIPELINE_SOCKET=/run/s":                          true,
		"PLEG_PIPELINE_RUN_SOCKET=/run/s":                      true,
		"PLEG_PIPELINE_SERVICE_HOST=10.0.0.1":                  true,
		"PLEG_PIPELINE_PORT=tcp://10.0.0.1:9090":               true,
		"PLEG_PIPELINE_METRICS_PORT_9090_TCP_ADDR=10.0.0.1":    true,
		"PLEG_PIPELINE_METRICS_SERVICE_PORT_HTTP_METRICS=9090": true,
		"OTHER_PIPELINE_RELIST_PERIODE=1s":                     true,
	} {
		for _, args := range [][]string{{"run", "--print-config"}, {"version"}} {
			code, _, stderr := execute(t, cli.Process{Environ: func() []string { return []string{"PATH=/bin", variable} }}, args...)
			name, _, _ := strings.Cut(variable, "=")
			if refused := code == cli.ExitUsage && strings.Contains(stderr, name); refused == ok {
				t.Errorf("%s: %s = exit code %d, %s", variable, args[0], code, stderr)
			}
		}
		if _, stdout, stderr := execute(t, cli.Process{Environ: func() []string { return []string{variable} }}, "__complete", "ru"); !strings.HasPrefix(stdout, "run\t") {
			t.Errorf("%s: a shell completes ru to %q, %s", variable, stdout, stderr)
		}
	}
}

// Each misspelt variable is named.
func TestTwoMisspeltVariables(t *testing.T) {
	environ := func() []string { return []string{"PLEG_PIPELINE_A=1", "PLEG_PIPELINE_B="} }
	code, _, stderr := execute(t, cli.Process{Environ: environ}, "version")
	const each = "environment variable PLEG_PIPELINE_%s: no flag has this name: want one of --print-config, such as PLEG_PIPELINE_RELIST_PERIOD\n"
	if want := "pleg-pipeline: " + fmt.Sprintf(each+each, "A", "B") + "Run 'pleg-pipeline version --help' for usage.\n"; code != cli.ExitUsage || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

// TestPrintConfig has a value of each type of flag.
func TestPrintConfig(t *testing.T) {
	env := map[string]string{"PLEG_PIPELINE_NATS_MAX_BYTES": "50M", "PLEG_PIPELINE_CHURN_RATE": "0.5", "PLEG_PIPELINE_SEED": "7"}
	code, out, errs := printConfig(t, env, "", strings.Fields("--simulate=5 --quiet --nats nats://h --cluster c --relist-period 90s -v warn")...)
	if code != cli.ExitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	kit.Golden(t, "testdata/print-config.golden", out)
}

func TestSettingsPrecedence(t *testing.T) {
	env := map[string]string{"PLEG_PIPELINE_INSPECTORS": "6", "PLEG_PIPELINE_HISTORY": "60", "PLEG_PIPELINE_SERVICE_HOST": "a Service of that name"}
	code, out, errs := printConfig(t, env, "inspectors: 4\nhistory: 40\nrelist-period: 4s\nsimulate: 5\nquiet: false\nevents: off\n", "--history", "10")
	if code != cli.ExitOK || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{
		"history: 10 # command line\n", "inspectors: 6 # PLEG_PIPELINE_INSPECTORS\n", "relist-period: 4s # /", "simulate: 5 # /",
		"quiet: false # /", "events: \"off\" # /", "# list-timeout: 2m0s # default\n",
	} {
		if !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("no line %q in:\n%s", want, out)
		}
	}
	// The output is a file with the same values.
	code, again, errs := printConfig(t, nil, out)
	if code != cli.ExitOK || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if strip(again) != strip(out) {
		t.Errorf("from the printed file:\n%s\nwant:\n%s", again, out)
	}
}

// OpenTelemetry's own variables of the endpoint count as the environment does.
func TestSettingsOfOpenTelemetry(t *testing.T) {
	for _, tc := range []struct {
		own, logs, all, file, want string
		args                       []string
	}{
		{want: `# otlp: "" # default`},
		{all: "http://all:4317", want: "otlp: http://all:4317 # OTEL_EXPORTER_OTLP_ENDPOINT"},
		{all: "http://all:4317/", want: "otlp: http://all:4317/ # OTEL_EXPORTER_OTLP_ENDPOINT"},
		{all: "http://all/base", want: "otlp: http://all/base/v1/logs # OTEL_EXPORTER_OTLP_ENDPOINT"},
		{logs: "http://logs/base", want: "otlp: http://logs/base # OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"},
		{logs: "logs:1", all: "all:1", file: "otlp: file:1", want: "otlp: logs:1 # OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"},
		{own: "own:1", logs: "logs:1", file: "otlp: file:1", want: "otlp: own:1 # PLEG_PIPELINE_OTLP"},
		{own: "own:1", logs: "logs:1", args: []string{"--otlp", "line:1"}, want: "otlp: line:1 # command line"},
	} {
		env := map[string]string{"PLEG_PIPELINE_OTLP": tc.own, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": tc.logs, "OTEL_EXPORTER_OTLP_ENDPOINT": tc.all}
		code, out, errs := printConfig(t, env, tc.file, tc.args...)
		if code != cli.ExitOK || errs != "" || !strings.Contains("\n"+out, "\n"+tc.want+"\n") {
			t.Errorf("%+v: exit code %d, stderr %q, no line %q in:\n%s", tc, code, errs, tc.want, out)
		}
	}
}

// strip removes the origins of the values.
func strip(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		value, _, _ := strings.Cut(strings.TrimPrefix(line, "# "), " # ")
		b.WriteString(value + "\n")
	}
	return b.String()
}

func TestSettingsErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		file string
		want string
	}{
		"two unknown keys":                {file: "zeta: 4\nalpha: 5", want: `file.yaml: unknown key "alpha": want the names of flags without the dashes`},
		"unknown key":                     {file: "inspectorz: 4", want: `unknown key "inspectorz"`},
		"key that is no setting":          {file: "print-config: true", want: `unknown key "print-config"`},
		"key twice":                       {file: "history: 4\nhistory: 5", want: "file.yaml: yaml: unmarshal errors:\n  line 2: key \"history\" already set in map\n"},
		"no mapping":                      {file: "- history", want: "cannot unmarshal"},
		"no value":                        {file: "history:", want: "history: invalid argument \"\" for \"--history\" flag: want a whole number"},
		"a list":                          {file: "history: [4]", want: "cannot unmarshal"},
		"bad value":                       {file: "history: many", want: "file.yaml: history: invalid argument \"many\""},
		"bad value in the environment":    {env: map[string]string{"PLEG_PIPELINE_HISTORY": "many"}, want: "PLEG_PIPELINE_HISTORY: invalid argument \"many\" for \"--history\" flag: want a whole number"},
		"bad endpoint in the environment": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:x/base"}, want: "--otlp (OTEL_EXPORTER_OTLP_ENDPOINT): bad endpoint: want"},
		"two bad variables": {
			env:  map[string]string{"PLEG_PIPELINE_RELIST_PERIOD": "x", "PLEG_PIPELINE_INSPECTORS": "few"},
			want: "want a time with its unit, such as 10s\nenvironment variable PLEG_PIPELINE_INSPECTORS: invalid argument \"few\" for \"--inspectors\" flag",
		},
		"value that is not allowed": {file: "inspectors: 0", want: "--inspectors must be at least 1, got 0"},
		"file that does not exist":  {env: map[string]string{"PLEG_PIPELINE_CONFIG_FILE": "/does/not/exist"}, want: "--config-file: open /does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := printConfig(t, tc.env, tc.file)
			if code != cli.ExitUsage || !strings.Contains(errs, tc.want) || out != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q, want a usage error with %q", code, out, errs, tc.want)
			}
		})
	}
}

// TestErrorNamesTheVariable also sets the variable that says which daemon events and pods ask, and
// that run does not use.
func TestErrorNamesTheVariable(t *testing.T) {
	t.Parallel()
	code, _, stderr := execute(t, with(map[string]string{"PLEG_PIPELINE_RUN_SOCKET": t.TempDir(), "PLEG_PIPELINE_SOCKET": "/nonexistent/s"}), "run", "--simulate=1")
	if want := "--socket (PLEG_PIPELINE_RUN_SOCKET): "; code != cli.ExitFailure || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

// Nothing is sent if OpenTelemetry's variables switch the export off.
func TestOpenTelemetryIsOff(t *testing.T) {
	t.Parallel()
	for variable, off := range map[string]bool{"OTEL_SDK_DISABLED=TRUE": true, "OTEL_LOGS_EXPORTER=none": true, "OTEL_SDK_DISABLED=false": false, "OTEL_LOGS_EXPORTER=otlp": false} {
		name, value, _ := strings.Cut(variable, "=")
		s := startIn(t, with(map[string]string{name: value, "NODE_NAME": "n7"}), io.Discard, "run", "--simulate=1", "--quiet", "--otlp", "http://127.0.0.1:1")
		want := "exporting OpenTelemetry logs as node n7 to http://127.0.0.1:1\n"
		if off {
			want = name + "=" + strings.ToLower(value) + " is set: nothing is exported to http://127.0.0.1:1"
		}
		text := s.stderr.await(t, want)
		s.stopAndWait(t)
		if off && strings.Contains(text+s.stderr.String(), "exporting") {
			t.Errorf("%s: %s", variable, s.stderr)
		}
	}
}

// Without --node and NODE_NAME, the node is this host. A variable of OpenTelemetry that cannot work is an error;
// of attributes, those that are well-formed are in use.
func TestOpenTelemetryOfThisHost(t *testing.T) {
	name, err := os.Hostname()
	kit.Must(t, err)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=a,b")
	s := start(t, io.Discard, "run", "--simulate=1", "--quiet", "--otlp", "http://127.0.0.1:1")
	s.stderr.await(t, `level=WARN msg="OTEL_RESOURCE_ATTRIBUTES is malformed" err="partial resource: missing value: [b]"`)
	s.stderr.await(t, "exporting OpenTelemetry logs as node "+name+" to http://127.0.0.1:1\n")
	s.stopAndWait(t)
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/none/cert")
	s = start(t, io.Discard, "run", "--simulate=1", "--quiet", "--otlp", "https://127.0.0.1:1")
	s.ends(t, cli.ExitFailure)
	if text := s.stderr.String(); !strings.Contains(text, "pleg-pipeline: --otlp: failed to load TLS: open /none/cert: no such file or directory\n") {
		t.Errorf("stderr %q", text)
	}
}

// The variables name the service and add to the resource; the node and the cluster are those of the flags.
func TestResource(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "pleg")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=7,k8s.node.name=other,zone=a,b")
	got, err := cli.Resource("n1", "prod")
	if want := "k8s.cluster.name=prod,k8s.node.name=n1,service.name=pleg,service.version=7,zone=a"; err != nil || got != want {
		t.Errorf("with variables %q, %v; want %q", got, err, want)
	}
	t.Setenv("OTEL_SERVICE_NAME", "")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "")
	got, err = cli.Resource("n1", "")
	if want := "k8s.node.name=n1,service.name=pleg-pipeline,service.version=(devel)"; err != nil || got != want {
		t.Errorf("without variables %q, %v; want %q", got, err, want)
	}
}
