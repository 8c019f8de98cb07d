package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
	kitprocess "github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// TestDoctor examines simulated runtimes, and a node without a runtime. A plugin prints one line
// and uses the exit codes of the node-problem-detector, whose example must call the doctor with
// flags that exist. A runtime that is slow, as on a busy machine, is examined again.
func TestDoctor(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/node-problem-detector.json")
	kit.Must(t, err)
	var config struct {
		Rules []struct{ Args []string }
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Rules) != 1 {
		t.Fatalf("%v, %d rules, want one", err, len(config.Rules))
	}
	plugin := strings.Join(config.Rules[0].Args, " ")
	const times = " --call-timeout 20s --timeout 1s"
	of, failing := " -r "+simulated(t, 3)+times, " -r "+simulated(t, 1, "--fault", "PodSandboxStatus/error", "--fault", "ContainerStatus/error")+times
	for _, test := range []struct {
		args string
		disk string // percent of the time in which processes waited for the resource
		code int
		want string
	}{
		{"doctor" + of, "61.00", cli.ExitOK, `^OK: the node is healthy, its 3 pods answer\n(.*\n)*Pods        3; sandboxes: 3 \(3 ready\); containers: 6 \(6 running.*\n(.*\n)*Pressure    processes waited for disk 61 %, CPU 34 %, memory 5 % of the last 10 s\n`},
		{"doctor --calls 10ms" + of, "0.00", cli.ExitOK, `\| ContainerStatus \| 16 \|`},
		{"doctor --calls 10ms -o json" + of, "0.00", cli.ExitOK, `"method": "ContainerStatus"`},
		{"doctor --calls 10ms" + failing, "0.00", cli.ExitOK, `\| PodSandboxStatus \| 1 \| 1 \|.*\| 1 \|\n(.*\n)*\| ContainerStatus \| 1 \| 2 \|.*\| 2 \|`},
		{"doctor -r /nonexistent/s -o json", "0.00", 3, `"cause": "runtime stopped"`},
		{plugin + of, "0.00", 0, `^OK: .*\n$`},
		{plugin + " -r /nonexistent/s", "0.00", 1, `^PROBLEM: the runtime is stopped: .*\n$`},
		{"doctor --npd --config /nonexistent/c.yaml", "0.00", 2, `^could not examine the node: read configuration: open /nonexistent/c\.yaml: no such file or directory\n$`},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ {
				p := cli.Process{Pressure: fstest.MapFS{
					"io":  {Data: []byte("some avg10=" + test.disk + " avg60=0.00 avg300=0.00 total=1\n")},
					"cpu": {Data: []byte("some avg10=34.00 ")}, "memory": {Data: []byte("some avg10=5.00 ")},
				}}
				code, stdout, stderr := execute(t, p, strings.Fields(test.args)...)
				if code == test.code && regexp.MustCompile(test.want).MatchString(stdout) && (code != cli.ExitUnhealthy || stderr == "") {
					return
				}
				if !isSlow(stdout) || try == 30 {
					t.Fatalf("exit code %d, output %q, stderr %q, want %d and %q", code, stdout, stderr, test.code, test.want)
				}
			}
		})
	}
}

// A measurement goes on for the time of --calls. If it is interrupted, it prints what it has measured.
func TestMeasurementIsInterrupted(t *testing.T) {
	t.Parallel()
	node, out := simruntime.New(simruntime.Options{}), newTranscript()
	node.Populate(simruntime.Population{Pods: 1, Containers: 1})
	listener, path := kit.Socket(t)
	kit.Run(t, func(ctx context.Context) error { return node.Serve(ctx, listener) })
	s := start(t, out, "doctor", "--calls", "1h", "-r", path)
	kitprocess.Eventually(t, "a second round", func(context.Context) error {
		if n := node.Stats().RPCs["ListPodSandbox"].Calls; n < 2 {
			return fmt.Errorf("%d lists", n)
		}
		return nil
	})
	s.stopAndWait(t)
	if !strings.Contains(out.String(), "\n| ListPodSandbox | 1 | ") {
		t.Errorf("stdout %q, want a table", out)
	}
}

// Like every command, a doctor that a signal ends exits with 0, whatever it has seen; a plugin has not examined the node.
func TestDoctorIsInterrupted(t *testing.T) {
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"doctor", cli.ExitOK, "", "pleg-pipeline: hangup before there was an answer\n"},
		{"doctor -r /nonexistent/s", cli.ExitOK, "PROBLEM: the runtime fails: ", ""},
		{"doctor --npd -r /nonexistent/s", 2, "could not examine the node: hangup\n", ""},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		end(errors.New("hangup"))
		out, said := newTranscript(), newTranscript()
		p := with(nil)
		p.Args, p.Out, p.Err, p.Sockets, p.Config = strings.Fields(test.args), out, said, []string{"/nonexistent/s"}, "/nonexistent/c"
		if code := cli.Execute(ctx, p); code != test.code || !strings.HasPrefix(out.String(), test.stdout) || said.String() != test.stderr {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %+v", test.args, code, out, said, test)
		}
	}
}

// TestFaultOfOnePod is the example of docs/cli.md.
func TestFaultOfOnePod(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	runtime := start(t, newTranscript(), "simulate", "--socket", socket, "--pods", "2", "--churn-rate", "0",
		"--fault", "ContainerStatus/hang", "--fault-pod", "shop/web-0")
	runtime.stderr.await(t, "simulated runtime serves")
	code, stdout, stderr := run(t, "doctor", "--timeout", "6s", "-r", "unix://"+socket)
	want := regexp.MustCompile(`^PROBLEM: shop/web-0 hangs for at least \S+ in ContainerStatus of nginx; the other 2 pods answer\n`)
	if code != cli.ExitUnhealthy || !want.MatchString(stdout) {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %v", code, stdout, stderr, want)
	}
	runtime.stopAndWait(t)
}

// Each kind of fault is what the help says, and the pod of a fault is one that exists. The seed determines the pods.
func TestSimulation(t *testing.T) {
	for text, want := range map[string]simruntime.Fault{
		"Version/error":           {RPC: "Version", Code: codes.Internal},
		"ListContainers/hang":     {RPC: "ListContainers", Hang: true},
		"ContainerStatus/slow":    {RPC: "ContainerStatus", Latency: 2 * time.Second},
		"PodSandboxStatus/slow":   {RPC: "PodSandboxStatus", Latency: 2 * time.Second},
		"GetContainerEvents/hang": {RPC: "GetContainerEvents", Hang: true},
		"ListPodSandbox/malform":  {RPC: "ListPodSandbox", Malform: simruntime.NilMetadata},
	} {
		if got, err := cli.ParseFault(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v, want %+v", text, got, err, want)
		}
	}
	node := simruntime.New(simruntime.Options{})
	node.Populate(simruntime.Population{Pods: 3, Containers: 1})
	pod := node.Pods()[1]
	if uid := cli.FindOrAddPod(node, pod.Namespace+"/"+pod.Name); uid != pod.UID || len(node.Pods()) != 3 {
		t.Errorf("found %s among %d pods, want %s", uid, len(node.Pods()), pod.UID)
	}
	newUID, added := cli.FindOrAddPod(node, "shop/new-0"), node.Pods()
	at := slices.IndexFunc(added, func(p *pleg.PodStatus) bool { return p.UID == newUID })
	if p := added[at]; p.Namespace+"/"+p.Name != "shop/new-0" || p.Sandboxes[0].Labels["app"] != "web" || len(p.Containers) != 1 || p.Containers[0].Name != "nginx" {
		t.Errorf("added %+v", p)
	}
	names := func(seed uint64) (all []string) {
		for _, p := range cli.PodsOfSeed(seed) {
			all = append(all, p.Namespace+"/"+p.Name)
		}
		return all
	}
	if one := names(1); len(one) != 3 || !slices.Equal(one, names(1)) || slices.Equal(one, names(2)) {
		t.Errorf("the pods of the seeds 1 and 2 are %q and %q", one, names(2))
	}
}

// The pods of a simulation wait for the first call of a client, so that the same flags repeat a run.
func TestSimulationBeginsWithACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := simruntime.New(simruntime.Options{})
		before := node.Populate(simruntime.Population{Pods: 3, Containers: 1})
		keep := before[1].UID
		kit.Run(t, func(ctx context.Context) error { return cli.ChurnAfterCall(ctx, node, 7, keep) })
		time.Sleep(time.Hour)
		if pods := node.Pods(); !reflect.DeepEqual(pods, before) {
			t.Errorf("without a call: %+v, want %+v", pods, before)
		}
		dial, _ := kit.Serve(t, node.Serve)
		_, err := runtimeapi.NewRuntimeServiceClient(kit.Connect(t, dial)).Version(t.Context(), &runtimeapi.VersionRequest{})
		kit.Must(t, err)
		same := simruntime.New(simruntime.Options{})
		same.Populate(simruntime.Population{Pods: 3, Containers: 1})
		kit.Run(t, func(ctx context.Context) error {
			return same.Churn(ctx, simruntime.ChurnOptions{Seed: 7, Rate: 2, Pods: 3, Keep: []pleg.PodUID{keep}})
		})
		time.Sleep(time.Minute + 100*time.Millisecond)
		words := func(pods []*pleg.PodStatus) (all []string) {
			for _, p := range pods {
				all = append(all, fmt.Sprint(p.UID, p.Containers[0].ID, p.Containers[0].Attempt))
			}
			return all
		}
		if got, want := words(node.Pods()), words(same.Pods()); !slices.Equal(got, want) || slices.Equal(got, words(before)) {
			t.Errorf("a minute after a call: %q, want %q", got, want)
		}
	})
}

// TestDoctorFindsNoRuntime examines a node on which there is no runtime, and no daemon that this user may ask.
func TestDoctorFindsNoRuntime(t *testing.T) {
	fails := func(err error) func(*testing.T) func(context.Context, string) (net.Conn, error) {
		return func(*testing.T) func(context.Context, string) (net.Conn, error) {
			return func(context.Context, string) (net.Conn, error) { return nil, err }
		}
	}
	of := func(h *hostile.Daemon) func(*testing.T) func(context.Context, string) (net.Conn, error) {
		return func(t *testing.T) func(context.Context, string) (net.Conn, error) { return serveHostile(t, "", h) }
	}
	ends := func(t *testing.T) func(context.Context, string) (net.Conn, error) { // before it is asked a third time
		var dialed atomic.Int32
		asks := serveHostile(t, "no bytes", nil)
		return func(ctx context.Context, socket string) (net.Conn, error) {
			if dialed.Add(1) > 2 {
				return nil, syscall.ECONNREFUSED
			}
			return asks(ctx, socket)
		}
	}
	refuses := &hostile.Daemon{OnStatus: answer[plegv1.GetStatusResponse](nil, status.Error(codes.Unavailable, "not now"))}
	var all strings.Builder
	for _, test := range []struct {
		name string
		dial func(*testing.T) func(context.Context, string) (net.Conn, error)
		args string
		code int
	}{
		{"no daemon", fails(syscall.ENOENT), "doctor", 3},
		{"no daemon", fails(syscall.ENOENT), "doctor -o json", 3},
		{"no daemon", fails(syscall.ENOENT), "doctor --npd", 1},
		{"no daemon at a given socket", fails(syscall.ENOENT), "doctor --connect /s", 3},
		{"a forbidden daemon", fails(syscall.EACCES), "doctor", 3},
		{"an ended daemon", fails(syscall.ECONNREFUSED), "doctor", 3},
		{"an ended daemon", fails(syscall.ECONNREFUSED), "doctor -o json", 3},
		{"a daemon that refuses", of(refuses), "doctor", 3},
		{"a daemon that ends", ends, "doctor", 3},
		{"a daemon without a runtime", of(&hostile.Daemon{}), "doctor", 0},
	} {
		kit.Bubble(t, test.name+", "+test.args, func(t *testing.T) {
			p := cli.Process{Sockets: []string{}, Dial: test.dial(t)}
			code, stdout, stderr := execute(t, p, strings.Fields(test.args)...)
			if code != test.code || stderr != "" {
				t.Errorf("exit code %d, stderr %q, want %d", code, stderr, test.code)
			}
			fmt.Fprintf(&all, "%s, $ %s\n%s\n", test.name, test.args, stdout)
		})
	}
	kit.Golden(t, "testdata/doctor-no-runtime.golden", all.String())
}

// The pod of a fault stays as it is while the others change.
func TestPodOfAFaultIsKept(t *testing.T) {
	t.Parallel()
	endpoint, out := simulated(t, 2, "--churn-rate", "200", "--fault", "ContainerStatus/slow", "--fault-pod", "shop/web-0"), newTranscript()
	s := start(t, out, "run", "-r", endpoint, "-o", "json")
	kitprocess.Eventually(t, "the other pods change", func(context.Context) error {
		if n := strings.Count(out.String(), string(pleg.ContainerRemoved)); n < 100 {
			return fmt.Errorf("%d containers were removed", n)
		}
		return nil
	})
	s.stopAndWait(t)
	if code, stdout, stderr := run(t, "pods", "-r", endpoint, "shop/web-0", "-o", "json"); code != cli.ExitOK || !strings.Contains(stdout, `"restarts":0`) {
		t.Errorf("exit code %d, %q, stderr %q; want the pod without a restart", code, stdout, stderr)
	}
}

// With --fault-pod each fault is of that pod alone.
func TestFaultsOfAPod(t *testing.T) {
	t.Parallel()
	client, err := cri.New(simulated(t, 3, "--fault", "ContainerStatus/error,PodSandboxStatus/error", "--fault-pod", "shop/web-0"), cri.Options{})
	kit.Must(t, err)
	pods, err := client.ListPods(t.Context())
	kit.Must(t, err)
	var failing []string
	for _, pod := range pods {
		if _, err := client.PodStatus(t.Context(), pod, nil); err != nil {
			failing = append(failing, pod.Namespace+"/"+pod.Name)
		}
	}
	if kit.Must(t, client.Close()); len(pods) != 4 || !slices.Equal(failing, []string{"shop/web-0"}) {
		t.Errorf("of %d pods the inspections of %q fail, want only that of the pod", len(pods), failing)
	}
}

// A plugin that may not ask the runtime knows nothing about the node.
func TestPluginWithoutPermission(t *testing.T) {
	denied := doctor.Judge(nil, verdict.Finding{Cause: verdict.NoPermission, Severity: verdict.Problem, Summary: "nobody may ask"})
	out := newTranscript()
	if err := cli.AnswerPlugin(out, denied); fmt.Sprint(err) != "exit code 2" || out.String() != "could not examine the node: nobody may ask\n" {
		t.Errorf("%v, %q", err, out)
	}
}

// isSlow reports whether the doctor found that the runtime is slow: on a busy machine, the
// simulated runtime may be.
func isSlow(report string) bool {
	verdict, _, _ := strings.Cut(report, "\n\n")
	return strings.Contains(verdict, " takes ") || strings.Contains(verdict, " take ") || strings.Contains(verdict, "waited for the disk") || strings.Contains(verdict, "waiting for the ")
}

// TestDoctorAsksBoth examines a runtime beside a daemon that works, has ended or is frozen, and
// without a daemon.
func TestDoctorAsksBoth(t *testing.T) {
	t.Parallel()
	works, dead, cri := socketPath(t), kit.AbandonedSocket(t), socketPath(t)
	_, frozen := kit.Socket(t)
	startDaemon(t, works)
	runtime := start(t, io.Discard, "simulate", "--socket", cri, "--pods", "3", "--churn-rate", "0")
	runtime.stderr.await(t, "simulated runtime serves")
	own := fmt.Sprintf("%d/stat", os.Getpid())
	for name, test := range map[string]struct {
		args  string
		state string // of the process that listens on the socket
		want  []string
	}{
		"a daemon":        {"--connect " + works, "S", []string{"(from the daemon)", "Daemon      " + works + ", OK: "}},
		"a dead daemon":   {"--connect " + dead, "S", []string{"WARNING: the daemon at " + dead + " does not answer: it has ended; the runtime is healthy"}},
		"a silent daemon": {"--connect " + frozen, "S", []string{"does not answer: it accepts connections, but sent nothing within 2s; the runtime is healthy"}},
		"a frozen daemon": {"--connect " + frozen, "T", []string{
			fmt.Sprintf("does not answer: its process %d is stopped (state T); the runtime is healthy", os.Getpid()), fmt.Sprintf("Do: continue it (kill -CONT %d)", os.Getpid()),
		}},
		"its runtime":     {"--calls 10ms --connect " + works, "S", []string{": 2 pods, "}},
		"a runtime alone": {"-r " + cri, "S", []string{"OK: ", "Daemon      not asked: the command line names a runtime"}},
	} {
		t.Run(name, func(t *testing.T) {
			process := with(map[string]string{endpoint.EnvEndpoint: cri})
			process.Proc = fstest.MapFS{"self/stat": {}, own: {Data: []byte("1 (x) " + test.state + " 1")}}
			code, stdout, stderr := execute(t, process, append([]string{"doctor", "--timeout", "1s"}, strings.Fields(test.args)...)...)
			for _, want := range test.want {
				if !isSlow(stdout) && (code != cli.ExitOK || !strings.Contains(stdout, want)) {
					t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
				}
			}
		})
	}
}

// TestDoctorAsksAgain uses a daemon that finds a problem while the doctor watches the node.
func TestDoctorAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		process := with(nil)
		process.Dial = serveHostile(t, "", &hostile.Daemon{OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
			s := &plegv1.PipelineStatus{Healthy: true, Endpoint: "unix:///nonexistent/cri.sock"}
			if asked++; asked > 1 {
				s.Quarantined = []*plegv1.QuarantinedPod{{Uid: "u1", Namespace: "shop", Name: "web-0"}}
			}
			return &plegv1.GetStatusResponse{Status: s}, nil
		}})
		if _, stdout, stderr := execute(t, process, "doctor", "--connect", "socket"); !strings.Contains(stdout, "shop/web-0") {
			t.Errorf("asked %d times, found %q, %q; want the pod of the last answer", asked, stdout, stderr)
		}
	})
}

// A daemon that does not answer is asked once: each question takes two seconds, if nothing ends the command before.
func TestDoctorAsksASilentDaemonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		process := with(map[string]string{endpoint.EnvEndpoint: "unix:///nonexistent/cri.sock"})
		process.Dial = serveHostile(t, "", &hostile.Daemon{OnStatus: func(ctx context.Context) (*plegv1.GetStatusResponse, error) {
			asked.Add(1)
			return nil, silent(ctx)
		}})
		if _, stdout, stderr := execute(t, process, "doctor", "--connect", "socket"); asked.Load() != 1 || !strings.Contains(stdout, "sent nothing within 2s") {
			t.Errorf("asked %d times, found %q, %q", asked.Load(), stdout, stderr)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		out := newTranscript()
		process.Args, process.Out, process.Err = []string{"doctor", "--connect", "socket"}, out, io.Discard
		if cli.Execute(ctx, process); !strings.Contains(out.String(), "the daemon at socket does not answer: status of the pipeline: ") {
			t.Errorf("ended after a second: %q, want no word about two", out)
		}
	})
}

// TestStoppedDaemon requires that no command waits for a daemon that is stopped by a signal.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	_, frozen := kit.Socket(t)
	process := with(nil)
	process.Proc = fstest.MapFS{"self/stat": {}, fmt.Sprintf("%d/stat", os.Getpid()): {Data: []byte("1 (x) T 1")}}
	process.Terminal = func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(vt.NewMockTerm()) }
	want := fmt.Sprintf("the daemon at %s does not answer: its process %d is stopped (state T); continue it (kill -CONT %[2]d)", frozen, os.Getpid())
	for _, args := range []string{"pods", "events", "top", "lookup --pid 1"} {
		code, stdout, stderr := execute(t, process, append(strings.Fields(args), "--connect", frozen)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, %q; want 1 and %q", args, code, stdout, stderr, want)
		}
	}
}
