package cli_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// usageErrors are command lines, with the text that the error must contain. A golden file has the whole texts.
var usageErrors = []struct{ args, want string }{
	{"walk", `unknown command "walk"`},
	{"run --walk", "unknown flag: --walk"},
	{"lookup", "want exactly one: the id of a CONTAINER, --pid or --cgroup"},
	{"lookup c --pid 1", "want exactly one: the id of a CONTAINER, --pid or --cgroup"},
	{"lookup c d", `unexpected argument "d"`},
	{"lookup --pid -1", "PID must be positive"},
	{"lookup --cgroup x", "want a whole number that is not negative"},
	{"lookup --pid 1 --wait -1s", "Wait must not be negative"},
	{"run walk", `unexpected argument "walk"`},
	{"run walk away", `unexpected argument "walk away"`},
	{"version walk", `unknown command "walk"`},
	{"run 50", `unexpected argument "50"`},
	{"run --simulate 50", "--simulate=50"},
	{"run --simulate=0", "--simulate must be between 1 and 100000, got 0"},
	{"run --simulate=100001", "--simulate must be between 1 and 100000, got 100001"},
	{"run --simulate=99999999999999999999", "value out of range"},
	{"run --simulate=many", `"--simulate" flag: want a whole number`},
	{"run --simulate -r /s", "--simulate cannot be combined with --runtime-endpoint"},
	{"run --simulate --config /c", "--simulate cannot be combined with --runtime-endpoint or --config"},
	{"run --runtime-endpoint=", "--runtime-endpoint must not be empty"},
	{"run --quiet=maybe", `flag: want true or false`},
	{"run --relist-period 0", "--relist-period must be longer than 0"},
	{"run --relist-period 1ms", "must be 10ms or longer"},
	{"run --relist-period 5", `invalid argument "5" for "--relist-period" flag: want a time with its unit, such as 10s`},
	{"run --relist-period 3m", "--relist-period (3m0s) must be shorter than 3m0s"},
	{"run --relist-period 4m", "--relist-period (4m0s) must be shorter than 3m0s"},
	{"run --events require", "flag: want off, auto"},
	{"run --inspectors 0", "--inspectors must be at least 1, got 0"},
	{"run --inspectors -2", "--inspectors must be at least 1, got -2"},
	{"run -o xml", `"-o, --output" flag: want text, wide, name, json`},
	{"run -o JSON", `"-o, --output" flag: want text, wide, name, json`},
	{"run --quiet", "--quiet needs --socket, --listen, --nats or --otlp"},
	{"run --nats nats://h", "--nats needs --cluster"},
	{"run --nats nats://h:4222,nats://secret@h --cluster c", "--nats must have no user, password or token"},
	{"run --nats nats://secret@h --cluster c --print-config", "--nats must have no user, password or token"},
	{"run --nats= --cluster c", "--nats must not be empty"},
	{"run --cluster c", "--cluster needs --nats or --otlp"},
	{"run --node n", "--node needs --nats or --otlp"},
	{"run --otlp http://h --creds f", "--creds needs --nats"},
	{"run --nats-domain d", "--nats-domain needs --nats"},
	{"run --nats-context f", "--nats-context needs --nats"},
	{"run --nkey f", "--nkey needs --nats"},
	{"run --tlscert f", "--tlscert needs --nats"},
	{"run --tlskey f", "--tlskey needs --nats"},
	{"run --tlsca f", "--tlsca needs --nats"},
	{"run --nats-max-bytes 5M", "--nats-max-bytes needs --nats"},
	{"run --nats nats://h --cluster c --tlskey f", "--tlscert and --tlskey need each other"},
	{"events --cluster c", "--cluster needs --fleet"},
	{"events --nats-stream s", "--nats-stream needs --fleet"},
	{"run --otlp=", "--otlp must not be empty"},
	{"run --otlp h:x", "--otlp (command line): bad endpoint: want HOST:PORT or a URL"},
	{"run --otlp http://h", "want a port and no path for gRPC, such as h:4317"},
	{"run --nats nats://h --cluster c --creds f --nkey f", "--creds cannot be combined with --nkey"},
	{"run --nats nats://h --cluster c --tlscert f", "--tlscert and --tlskey need each other"},
	{"events --fleet nats://h", "--fleet needs --cluster"},
	{"events --fleet nats://h --cluster=", "--fleet needs --cluster"},
	{"fleet forget n", "--fleet is missing"},
	{"fleet forget --fleet nats://h --cluster c", "want the names of the nodes"},
	{"fleet forget --fleet nats://h --cluster c --silent-for 1h n", "want the names of the nodes, or --silent-for"},
	{"fleet forget --fleet nats://h --cluster c --silent-for -5m n", "want the names of the nodes, or --silent-for"},
	{"fleet forget --fleet nats://h --cluster c --silent-for 0s", "--silent-for 0s: want a positive time"},
	{"fleet create --fleet nats://h --cluster c --replicas 4", "--replicas 4: want 1, 3 or 5"},
	{"fleet create --fleet nats://h --cluster c --max-age 0s", "--max-age 0s: want a positive time"},
	{"fleet create --fleet nats://h --cluster c --max-bytes 5X", `"5X" is no size`},
	{"fleet create --fleet nats://h --cluster c --max-bytes 8388608T", `"8388608T" is no size`},
	{"fleet create --walk", "unknown flag: --walk"},
	{"fleet forgot", `unknown command "forgot" for "pleg-pipeline fleet"`},
	{"fleet", "fleet needs one of create, forget"},
	{"events --node n", "--node needs --fleet"},
	{"events --cluster c", "--cluster needs --fleet"},
	{"events --nats-stream s", "--nats-stream needs --fleet"},
	{"events --fleet nats://h --cluster c --connect /s", "--fleet cannot be combined with --connect"},
	{"events --fleet nats://h --cluster c -r /r", "--fleet cannot be combined with --runtime-endpoint"},
	{"events --fleet nats://h --cluster c --since 12", `--since: "12" is not a position of a fleet`},
	{"run --socket=", "--socket must not be empty"},
	{"run --config-file=", "--config-file must not be empty"},
	{"run --web-config f", "--web-config needs --listen"},
	{"run --listen=", "--listen: "},
	{"run --health-listen port", "--health-listen: "},
	{"run --health-listen=", "--health-listen: "},
	{"events --type Born", `--type "Born" is unknown: want ContainerStarted, `},
	{"events -l ((", `--selector: "((" is not a label selector`},
	{"events --since x", `--since: "x" is not a position: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120, or a time, such as 10m`},
	{"events --since -1", `--since: "-1" is not a position`},
	{"events --since -5m", `--since: "-5m" is not a position`},
	{"events --since 475", `--since: "475" has no epoch, so it may be a number of another pipeline: want EPOCH:SEQ`},
	{"events --since 3c5e:1 --replay --fleet nats://h --cluster c", "--since cannot be combined with --replay"},
	{"events --since 3c5e:1 -r /r", "--since needs a daemon"},
	{"events --connect=", "--connect must not be empty"},
	{"events --simulate", "unknown flag: --simulate"},
	{"events --connect /s -r /r", "--connect cannot be combined with --runtime-endpoint"},
	{"rum", "Did you mean this?\n  run"},
	{"logs web-0", "Did you mean this?\n  events"},
	{"log web-0", "Did you mean this?\n  events"},
	{"watch", "Did you mean this?\n  events"},
	{"completion", "completion needs one of bash, fish, powershell, zsh"},
	{"describe pod web-0", "Did you mean this?\n  pods"},
	{"get pods", "Did you mean this?\n  pods"},
	{"pods -l a=b=c", `--selector: "a=b=c" is not a label selector`},
	{"pods --connect /s --config /c", "--connect cannot be combined with --config"},
	{"doctor --connect /s -r /r", "--connect cannot be combined with --runtime-endpoint"},
	{"doctor --npd -o json", "--npd cannot be combined with --output"},
	{"doctor --calls -1s", "--calls must be longer than 0"},
	{"doctor --calls 1s --npd", "--calls cannot be combined with --npd"},
	{"doctor --fleet nats://h", "--fleet needs --cluster"},
	{"doctor --fleet nats://h --cluster c --npd", "--fleet cannot be combined with --npd or --calls"},
	{"doctor --fleet nats://h --cluster c --calls 1s", "--fleet cannot be combined with --npd or --calls"},
	{"simulate --socket s --fault ContainerStatus", "want one of error, hang, malform, slow"},
	{"simulate --socket s --fault ContainerStatus/stop", `kind "stop": want one of`},
	{"simulate --socket s --fault Nothing/hang", `call "Nothing": want one of`},
	{"simulate --socket s --fault-pod shop/web-0", "--fault-pod needs --fault"},
	{"simulate --socket s --fault ContainerStatus/hang --fault-pod web-0", `--fault-pod "web-0": want NAMESPACE/NAME`},
	{"simulate --socket /none/s --fault ContainerStatus/hang --fault-pod /web-0", `--fault-pod "/web-0": want NAMESPACE/NAME`},
	{"simulate --socket /none/s --fault ContainerStatus/hang --fault-pod shop/", `--fault-pod "shop/": want NAMESPACE/NAME`},
	{"simulate --socket s --fault ListContainers/hang --fault-pod shop/web-0", "needs a call about one pod"},
	{"doctor --timeout 0", "--timeout must be longer than 0, got 0s"},
	{"doctor --call-timeout -1s", "must be longer than 0"},
	{"record", "want the name of the FILE to write"},
	{"record a b", `unexpected argument "b"`},
	{"record a --duration -1s", "--duration must not be negative, got -1s"},
	{"record a --inspectors 0", "--inspectors must be at least 1, got 0"},
	{"record a -r replay:", "needs the name of a recording"},
	{"run -r replay:", "needs the name of a recording"},
	{"simulate", "--socket is required"},
	{"simulate --socket /s --pods -1", "--pods must be between 0 and 100000, got -1"},
	{"simulate --socket /s --churn-rate -1", "--churn-rate must be"},
	{"simulate --socket /s --churn-rate many", "want a number"},
	{"simulate --socket /none/s --churn-rate NaN", "--churn-rate must be"},
	{"simulate --socket /none/s --churn-rate +Inf", "--churn-rate must be"},
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, test := range usageErrors {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := run(t, strings.Fields(test.args)...)
			if code != cli.ExitUsage || stdout != "" {
				t.Errorf("exit code %d and output %q, want %d and none", code, stdout, cli.ExitUsage)
			}
			if strings.Contains(stderr, "secret") {
				t.Errorf("stderr tells the secret: %q", stderr)
			}
			if !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--help' for usage") {
				t.Errorf("stderr = %q, want %q and how to get help", stderr, test.want)
			}
			fmt.Fprintf(&all, "$ %s\n%s\n", test.args, stderr)
		})
	}
	kit.Golden(t, "testdata/usage-errors.golden", all.String())
}

// The last values that a limit allows.
func TestLimitsAreAllowed(t *testing.T) {
	for _, args := range []string{
		"--simulate=1", "--simulate=100000", "--inspectors 1", "--relist-period 10ms", "--relist-period 2m59s", "--quiet --listen 0", "--quiet --socket /s", "--quiet --otlp h:1", "--quiet --nats h --cluster c",
	} {
		if code, _, stderr := run(t, append([]string{"run", "--print-config"}, strings.Fields(args)...)...); code != cli.ExitOK || stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr)
		}
	}
}

// What a process does not name is that of the system.
func TestDefaultsOfTheProcess(t *testing.T) {
	pressure, cgroups, proc, sockets := cli.Defaults()
	if got := fmt.Sprintf("%s, %s, %s", pressure, cgroups, proc); got != "/proc/pressure, /sys/fs/cgroup, /proc" || !slices.Equal(sockets, endpoint.WellKnown()) {
		t.Errorf("%s, sockets %q", got, sockets)
	}
}

// TestFlagsReachTheirOptions gives each flag a value of its own.
func TestFlagsReachTheirOptions(t *testing.T) {
	got, client, err := cli.OptionsOf("--relist-period=2s", "--relist-threshold=4m", "--list-timeout=5s", "--inspect-timeout=6s",
		"--events=auto", "--relist-period-with-events=7s", "--inspectors=8", "--history=1001")
	kit.Must(t, err)
	want := pipeline.Options{
		RelistPeriod: 2 * time.Second, RelistThreshold: 4 * time.Minute, ListTimeout: 5 * time.Second, InspectTimeout: 6 * time.Second,
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: 7 * time.Second, Inspectors: 8,
		History: 1001,
	}
	if got.Registerer, got.Runtime = nil, nil; !reflect.DeepEqual(got, want) {
		t.Errorf("the options of the pipeline are\n%+v, want\n%+v", got, want)
	}
	of := cri.Options{ListTimeout: 5 * time.Second, StatusTimeout: 6 * time.Second}
	if client.Registerer = nil; !reflect.DeepEqual(client, of) {
		t.Errorf("the options of the client are\n%+v, want\n%+v", client, of)
	}
}

// A constant that only tunes a rule gets no flag.
func TestFewKnobs(t *testing.T) {
	for _, name := range []string{
		"seed", "churn-rate", "replay-speed", "history", "max-connections", "max-watchers", "max-event-streams", "max-quarantine",
		"relist-threshold", "relist-period-with-events", "kubelet-metric-names",
	} {
		if cli.Shipped.Lookup(name) != nil {
			t.Errorf("run has --%s", name)
		}
	}
}

// TestHelp compares the help, which is the manual, with golden files. Read a difference
// as a user would, and accept it with UPDATE_GOLDEN=1.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, golden string }{
		{"", "testdata/root.golden"},
		{"run --help", "testdata/run.golden"},
		{"events --help", "testdata/events.golden"},
		{"pods --help", "testdata/pods.golden"},
		{"lookup --help", "testdata/lookup.golden"},
		{"top --help", "testdata/top.golden"},
		{"fleet --help", "testdata/fleet.golden"},
		{"fleet create --help", "testdata/fleet-create.golden"},
		{"fleet forget --help", "testdata/fleet-forget.golden"},
		{"doctor --help", "testdata/doctor.golden"},
		{"simulate --help", "testdata/simulate.golden"},
		{"record --help", "testdata/record.golden"},
		{"version --help", "testdata/version.golden"},
	} {
		code, stdout, stderr := run(t, strings.Fields(test.args)...)
		if code != cli.ExitOK || stderr != "" {
			t.Errorf("%q: exit code %d, stderr %q", test.args, code, stderr)
		}
		kit.Golden(t, test.golden, stdout)
	}
}

// TestFlagsThatOnlyTuneAreDocumented requires that each flag that the help hides has a row, and
// that the help shows few flags.
func TestFlagsThatOnlyTuneAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/operations.md")
	kit.Must(t, err)
	_, help, _ := run(t, "run", "--help")
	_, all, _ := run(t, "run", "--print-config")
	for line := range strings.Lines(all) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "# "), ":")
		if cli.Shipped.Lookup(name) != nil && !strings.Contains(help, "--"+name+" ") && !strings.Contains(string(page), "`--"+name+"`") {
			t.Errorf("neither the help nor docs/operations.md has --%s", name)
		}
	}
	if shown := len(regexp.MustCompile(`(?m)^ +(-., )?--`).FindAllString(help, -1)); shown > 35 {
		t.Errorf("the help has %d flags, want at most 35", shown)
	}
}

// A release and another build, as text, as JSON and as a metric.
func TestVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, build := range []struct{ version, revision, said string }{{"", "", "(devel) ("}, {"v9.8.7", "0f1e2d", "v9.8.7 (commit 0f1e2d, "}} {
		cli.Release(t, build.version, build.revision)
		info := debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.time", Value: "now"}, {Key: "vcs.revision", Value: "5e4d"}}}
		if of, commit := cli.BuildOf(&info); of != cmp.Or(build.version, "v1.2.3") || commit != cmp.Or(build.revision, "5e4d") {
			t.Errorf("the build %+v is %s of %s", info, of, commit)
		}
		shown := cmp.Or(build.version, "(devel)")
		line := fmt.Sprintf("pleg-pipeline %s%s, %s)\n", build.said, runtime.Version(), platform)
		for arg, want := range map[string]string{
			"version": line, "--version": line,
			"version -o json": fmt.Sprintf(`{"commit":%q,"goVersion":%q,"platform":%q,"version":%q}`+"\n", build.revision, runtime.Version(), platform, shown),
		} {
			if code, stdout, stderr := run(t, strings.Fields(arg)...); code != cli.ExitOK || stdout != want || stderr != "" {
				t.Errorf("%s = %d %q and stderr %q, want %q", arg, code, stdout, stderr, want)
			}
		}
		want := fmt.Sprintf("# HELP pleg_build_info Always 1; the labels say what was built.\n# TYPE pleg_build_info gauge\npleg_build_info{goversion=%q,revision=%q,version=%q} 1\n",
			runtime.Version(), build.revision, shown)
		if err := testutil.CollectAndCompare(cli.NewBuildMetric(), strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}

// Whoever closes the output before it is written ends the program in order.
func TestClosedOutput(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	for _, args := range []string{"version", "version -o json", "run --print-config", "events -r replay:testdata/restart.jsonl", "pods -r replay:testdata/short.jsonl"} {
		s := start(t, w, strings.Fields(args)...)
		if s.ends(t, cli.ExitOK); strings.Contains(s.stderr.String(), "closed pipe") {
			t.Errorf("%s: stderr %q", args, s.stderr)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"__complete run --output ", "text\nwide\nname\njson\n:4\n"}, // no names of files
		{"__complete ru", "run\t"},
		{"__complete events --type ", "ContainerStarted\nContainerDied\n"},
	} {
		args := strings.Split(test.args, " ")
		if _, stdout, _ := run(t, args...); !strings.HasPrefix(stdout, test.want) {
			t.Errorf("%q = %q, want a text that begins with %q", test.args, stdout, test.want)
		}
	}
	if code, stdout, _ := run(t, "completion", "bash"); code != cli.ExitOK || !strings.Contains(stdout, "complete") {
		t.Errorf("completion bash = %d and %d bytes", code, len(stdout))
	}
}
