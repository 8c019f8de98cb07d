package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// trouble is a row of the table: a trouble, and the texts that every surface must contain.
type trouble struct {
	// before breaks the runtime before the daemon starts, begin while it runs, answer changes its answers.
	// after is the time at which the surfaces are asked.
	before, begin func(*testing.T, *kit.Simulation)
	answer        func(any)
	after         time.Duration
	// reports contains facts that the test invents: a bubble contains no socket file.
	reports pleg.Report
	// want is the verdict of the daemon, alert the alert that fires once the verdict is old.
	want, alert string
	cause       verdict.Cause
	// also is a second trouble.
	also string
	// node changes the node as the daemon and the doctor see it. partly means that a doctor without the
	// daemon does not see the trouble.
	node   func(*testing.T, *kit.Simulation, *doctor.Options)
	partly bool
}

// TestEverySurfaceSaysTheSame breaks the runtime of a daemon. Whatever shows health must name the
// same cause and subject, with the same severity and the same age from the first attempt on.
// Troubles of the daemon are in TestDoctorAsksBoth, those of real processes in tests/real/e2e.
func TestEverySurfaceSaysTheSame(t *testing.T) {
	fault := func(f simruntime.Fault) func(*testing.T, *kit.Simulation) {
		return func(_ *testing.T, s *kit.Simulation) {
			s.Node.Inject(f)
		}
	}
	addsWeb := func(t *testing.T, s *kit.Simulation) { addWeb(t, s) }
	for name, test := range map[string]trouble{
		"killed": {
			begin: func(_ *testing.T, s *kit.Simulation) { s.StopServing() }, after: 2500 * time.Millisecond, cause: verdict.RuntimeStopped,
			want: "PROBLEM: the runtime is stopped since 00:00 (1.5s", alert: "PlegRuntimeFails",
		},
		"frozen at start": {
			before: fault(simruntime.Fault{Hang: true}), after: 8 * time.Second, cause: verdict.RuntimeHangs,
			want: "PROBLEM: the runtime hangs since 00:00 (8.0s) in ", alert: "PlegListHangs",
		},
		"frozen later": {
			begin: fault(simruntime.Fault{Hang: true}), after: 10 * time.Second, cause: verdict.RuntimeHangs,
			want: "PROBLEM: the runtime hangs since 00:00 (9.0s) in ListContainers", alert: "PlegListHangs",
		},
		"lists time out": {
			begin: fault(simruntime.Fault{RPC: "ListContainers", Hang: true}), after: 5*time.Minute + 30*time.Second, cause: verdict.RuntimeHangs,
			want: "PROBLEM: the runtime hangs since 00:00 (5m, 3 attempts) in ListContainers", alert: "PlegListHangs",
		},
		"frozen shim": {
			begin: addsWeb, after: 20 * time.Second, cause: verdict.HungShim,
			want:  "PROBLEM: shop/web-0 has a hung shim since 00:00 (18s): containerd-shim, PID 4711, is stopped by a signal",
			alert: "PlegPodsHang", node: stoppedShim("containerd-shim", "/usr/bin/containerd-shim-runc-v2\x00-id\x00"),
		},
		"frozen shim and disk full": {
			begin: addsWeb, after: 20 * time.Second, cause: verdict.HungShim, alert: "PlegPodsHang PlegRuntimeEndangered",
			want: "PROBLEM: shop/web-0 has a hung shim since 00:00 (18s): containerd-shim, PID 4711, is stopped by a signal",
			also: "/simulated/images is almost full since 0",
			node: func(t *testing.T, s *kit.Simulation, o *doctor.Options) {
				stoppedShim("containerd-shim", "/usr/bin/containerd-shim-runc-v2\x00-id\x00")(t, s, o)
				fullDisk(t, s, o)
			},
		},
		"conmon stopped": {
			begin: addsWeb, after: 20 * time.Second, cause: verdict.HungShim,
			want:  "PROBLEM: shop/web-0 has a hung shim since 00:00 (18s): conmon, PID 4711, is stopped by a signal",
			alert: "PlegPodsHang", node: stoppedShim("conmon", "/usr/bin/conmon\x00-c\x00"),
		},
		"slow": {
			begin: fault(simruntime.Fault{Latency: 2100 * time.Millisecond}), after: 20500 * time.Millisecond, cause: verdict.RuntimeSlow,
			want: "WARNING: the runtime is slow since 00:00 (17s): the list of all pods takes up to 2.1s", alert: "PlegRuntimeSlow",
		},
		"socket gone": {
			reports: pleg.Report{Degraded: errors.New("the socket is gone")}, after: 20500 * time.Millisecond, cause: verdict.Fallback,
			want: "PROBLEM: the runtime works by a fallback since 00:00 (19s): the socket is gone", alert: "PlegFallback", node: removedSocket,
		},
		"disk full": {
			after: 20 * time.Second, cause: verdict.Disk, node: fullDisk,
			want: "PROBLEM: /simulated/images is almost full since 00:00 (19s)", alert: "PlegRuntimeEndangered",
		},
		"unread events": {
			after: 20 * time.Second, cause: verdict.ClientNotReading,
			want:  "PROBLEM: agent does not read from the runtime since 00:00 (19s): agent, PID 7, is stopped by a signal",
			alert: "PlegRuntimeEndangered",
			node: func(_ *testing.T, _ *kit.Simulation, o *doctor.Options) {
				o.Host.Proc = fstest.MapFS{"self/stat": {}, "7/stat": {Data: []byte("7 (agent) T 1")}, "7/fd/3": {Data: []byte("socket:[70]"), Mode: fs.ModeSymlink}}
				o.Host.Sockets = func() ([]host.Socket, error) {
					return []host.Socket{{Path: "/simulated", Peer: 70, Unread: 900}}, nil
				}
			},
		},
		"the list is too large": {
			begin: fault(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.ResourceExhausted}), after: 20500 * time.Millisecond, cause: verdict.ListTooLarge,
			want: "PROBLEM: the list of all pods is too large since 00:00 (19s), so pods are listed in portions: list pod sandboxes: ", alert: "PlegListTooLarge", partly: true,
		},
		"a status lacks its container": {
			begin: func(t *testing.T, s *kit.Simulation) {
				s.Node.Inject(simruntime.Fault{RPC: "ContainerStatus", ID: addWeb(t, s).Containers[0].ID, Code: codes.NotFound})
			}, after: 30500 * time.Millisecond, cause: verdict.Contradiction, partly: true,
			want: "WARNING: shop/web-0 differs in lists and statuses since 00:00 (29s): container nginx is running in the lists and is missing in its status",
		},
		"no network": {
			answer: func(a any) {
				if status, ok := a.(*runtimeapi.StatusResponse); ok {
					status.Status.Conditions = []*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Message: "cni plugin not initialized"}}
				}
			}, after: 20 * time.Second, cause: verdict.NetworkPlugin,
			want: "PROBLEM: the network of the runtime is not ready since 00:00 (19s): cni plugin not initialized", alert: "PlegRuntimeNotReady",
		},
		"events that nobody reads": {
			reports: pleg.Report{Troubles: []pleg.Trouble{{
				Cause: string(verdict.ClientNotReading), Problem: true, Since: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Subject: "a client", What: "does not read the events of the runtime", Detail: ": starts wait",
			}}}, after: 20 * time.Second, cause: verdict.ClientNotReading, partly: true,
			want: "PROBLEM: a client does not read the events of the runtime since 00:00 (20s): starts wait", alert: "PlegRuntimeEndangered",
		},
		"many dead containers": {
			begin: func(_ *testing.T, s *kit.Simulation) {
				s.Node.Populate(simruntime.Population{Pods: 2, Containers: 1, Dead: 120})
			}, after: 25 * time.Second, cause: verdict.DeadContainers,
			want: "WARNING: the runtime has many dead containers since 00:00 (14s): 240 containers have exited and 0 sandboxes are not ready",
		},
		"a list fails": {
			begin: fault(simruntime.Fault{RPC: "ListContainers", Code: codes.Internal, Message: "broken"}), after: 20500 * time.Millisecond, cause: verdict.RuntimeFails,
			want: "PROBLEM: the list of all pods fails since 00:00 (19s, 20 attempts): list pods: list containers: broken", alert: "PlegRuntimeFails", partly: true,
		},
		"a pod hangs": {
			begin: hangWeb, after: 20500 * time.Millisecond, cause: verdict.HungContainer, alert: "PlegPodsHang",
			want: "PROBLEM: shop/web-0 hangs since 00:00 (19s) in ContainerStatus of nginx; the other 4 pods answer",
		},
		"a pod hangs for long": {
			begin: hangWeb, after: 24 * time.Minute, cause: verdict.HungContainer, alert: "PlegPodsHang",
			want: "PROBLEM: shop/web-0 hangs since 00:00 (23m, 11 attempts) in ContainerStatus of nginx; the other 4 pods answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { requireSame(t, test) })
		})
	}
}

func requireSame(t *testing.T, test trouble) {
	node := simruntime.New(simruntime.Options{Seed: 1})
	node.Populate(simruntime.Population{Pods: 4, Containers: 1})
	t.Cleanup(node.ClearAll)
	if test.before != nil {
		test.before(t, &kit.Simulation{Node: node})
	}
	var logged kit.Log
	var sees machine
	sees.Store(&doctorOptions(test).Host)
	var runtime *host.Runtime
	s := kit.Simulate(t, node, pipeline.Options{Logger: logged.Logger()}, cri.Options{DialOptions: doctorOptions(test).DialOptions}, func(c *cri.Client) pleg.Runtime {
		runtime = host.Watch(c, host.Options{Endpoint: "unix:///simulated", Proc: &sees, Follower: kit.Follower{}, Sockets: sees.sockets, Usage: sees.usage})
		return reporting{runtime, test.reports}
	})
	kit.Run(t, func(ctx context.Context) error {
		time.Sleep(300 * time.Millisecond) // looks come between two lists
		return runtime.Run(ctx, s.Pipeline)
	})
	dial := serveDaemon(t, s.Pipeline.Pipeline)
	if test.begin != nil {
		test.begin(t, s)
	}
	if test.node != nil {
		o := doctorOptions(test)
		test.node(t, s, o)
		sees.Store(&o.Host)
	}
	time.Sleep(test.after)
	level, rest, _ := strings.Cut(test.want, ": ")
	first := series{strings.ToLower(level), string(test.cause)}
	age := regexp.MustCompile(` \([0-9.]+[smh]`).FindString(rest)
	told := metric(t, s.Pipeline)
	since := told[first]
	if got := " (" + verdict.Span(time.Since(since)); age != "" && got != age {
		t.Errorf("the metric %v: %q, want %q; all are %v", first, got, age, told)
	}
	if got := strings.Join(alerts(t, told), " "); got != test.alert {
		t.Errorf("the alerts: %q, want %q", got, test.alert)
	}
	for surface, text := range surfaces(t, s.Pipeline, dial) {
		want := test.want
		switch {
		case surface == "doctor --npd": // has no ages
			want, _, _ = strings.Cut(want, " (")
		case surface == "doctor --fleet": // contains the number of nodes, and nothing about other pods
			want, _, _ = strings.Cut(strings.Replace(want, ": ", ": 1 of 1 nodes; node-a: ", 1), "; the other")
		case surface == "pods" && test.before != nil: // "pods" waits for the first list, and says so
			want, _, _ = strings.Cut(want, " (")
		case strings.HasPrefix(rest, "shop/web-0") && (surface == "pods" || surface == "top"):
			state := "hung"
			if test.cause == verdict.Contradiction {
				state = "unknown"
			}
			if !strings.Contains(text, "web-0 "+state+" ") || surface == "pods" && !strings.Contains(text[:strings.Index(text, test.want[:7])], verdict.Of(s.Look()).Findings[0].What) {
				t.Errorf("%s: %q, want that web-0 is %s, and why", surface, text, state)
			}
		}
		if !strings.Contains(text, want) || surface != "doctor --npd" && surface != "doctor --fleet" && !strings.Contains(text, test.also) {
			t.Errorf("%s: %q, want %q, %q", surface, text, want, test.also)
		}
	}
	requireLogged(t, &logged, verdict.Of(s.Look()), since, len(told))
	for _, asked := range []bool{false, true} {
		if asked || !test.partly {
			requireExamined(t, s, test, asked)
		}
	}
}

// requireLogged requires one line for each trouble.
func requireLogged(t *testing.T, logged *kit.Log, v verdict.Verdict, since time.Time, troubles int) {
	t.Helper()
	f := v.Findings[0]
	logged.RequireLines(t, troubles, "trouble begins")
	for _, want := range []string{
		fmt.Sprintf("severity=%s cause=%q since=%s", f.Severity, f.Cause, since.Format("2006-01-02T15:04:05.000Z07:00")), fmt.Sprintf("what=\"%s %s since 00:00", f.Subject, f.What),
	} {
		if text := strings.ReplaceAll(logged.String(), "cause="+string(f.Cause), fmt.Sprintf("cause=%q", f.Cause)); !strings.Contains(text, want) {
			t.Errorf("logged %s\nwant %s", text, want)
		}
	}
}

// requireExamined examines the runtime, with the daemon's status or without.
func requireExamined(t *testing.T, s *kit.Simulation, test trouble, asked bool) {
	t.Helper()
	o := doctorOptions(test)
	o.DialOptions = append(o.DialOptions, grpc.WithContextDialer(s.Dial))
	if test.node != nil {
		test.node(t, s, o)
	}
	if asked {
		o.Ask = func(ctx context.Context) *doctor.Daemon {
			status, _ := s.Status(ctx)
			return doctor.NewDaemon("/run/d", status)
		}
	}
	r := doctor.Examine(t.Context(), *o)
	want := verdict.Of(s.Look()).Findings[0]
	if len(r.Findings) == 0 {
		t.Fatalf("doctor, the daemon asked %t: %s", asked, r.Verdict)
	}
	got := r.Findings[0]
	if got.Cause != test.cause || got.Severity != want.Severity || got.Subject != want.Subject {
		t.Errorf("doctor, the daemon asked %t: %s: %s of %q: %s; want %s: %s of %q", asked, got.Severity, got.Cause, got.Subject, got.Summary, want.Severity, want.Cause, want.Subject)
	}
	if asked && !got.Since.Equal(want.Since) {
		t.Errorf("doctor: since %v, want %v", got.Since, want.Since)
	}
}

// doctorOptions are those of a node without trouble.
func doctorOptions(test trouble) *doctor.Options {
	o := &doctor.Options{
		Endpoint: "unix:///simulated", Source: "the test", Watch: 10 * time.Second, Pressure: fstest.MapFS{},
		Host: host.Options{
			Proc: fstest.MapFS{}, Follower: kit.Follower{}, Sockets: func() ([]host.Socket, error) { return nil, nil },
			Usage: func(string) (float64, float64, error) { return 50, 10, nil },
		},
	}
	if test.answer != nil {
		o.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			err := invoke(ctx, method, request, answer, conn, opts...)
			if err == nil {
				test.answer(answer)
			}
			return err
		})}
	}
	return o
}

// machine is the present node as its daemon sees it.
type machine struct{ atomic.Pointer[host.Options] }

func (m *machine) files() fstest.MapFS { return m.Load().Proc.(fstest.MapFS) }

func (m *machine) Open(name string) (fs.File, error) { return m.files().Open(name) }

func (m *machine) ReadLink(name string) (string, error) { return m.files().ReadLink(name) }

func (m *machine) Lstat(name string) (fs.FileInfo, error)              { return m.files().Lstat(name) }
func (m *machine) sockets() ([]host.Socket, error)                     { return m.Load().Sockets() }
func (m *machine) usage(path string) (used, inodes float64, err error) { return m.Load().Usage(path) }

// reporting is a runtime with an additional report.
type reporting struct {
	*host.Runtime
	also pleg.Report
}

// Report implements [pleg.Reporter].
func (w reporting) Report() pleg.Report {
	r := w.Runtime.Report()
	r.Degraded, r.Troubles = cmp.Or(w.also.Degraded, r.Degraded), slices.Concat(r.Troubles, w.also.Troubles)
	return r
}

// fullDisk contains a filesystem that is almost full.
func fullDisk(_ *testing.T, _ *kit.Simulation, o *doctor.Options) {
	o.Host.Usage = func(string) (float64, float64, error) { return 97, 10, nil }
}

// stoppedShim contains a process of this name that watches the pod shop/web-0 and is stopped.
func stoppedShim(name, line string) func(*testing.T, *kit.Simulation, *doctor.Options) {
	return func(_ *testing.T, s *kit.Simulation, o *doctor.Options) {
		pods := s.Node.Pods()
		web := pods[slices.IndexFunc(pods, func(p *pleg.PodStatus) bool { return p.Name == "web-0" })]
		id := string(web.Sandboxes[0].ID)
		if name == "conmon" {
			id = string(web.Containers[0].ID)
		}
		stat := &fstest.MapFile{Data: []byte("4711 (" + name + ") T 1")}
		o.Host.Proc = fstest.MapFS{
			"self/stat": {}, "4711/stat": stat, "4711/task/4711/stat": stat,
			"4711/cmdline": {Data: []byte(line + id + "\x00")},
		}
	}
}

// removedSocket contains a socket on which a process listens, and which was removed.
func removedSocket(t *testing.T, _ *kit.Simulation, o *doctor.Options) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	kit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	kit.Must(t, os.Remove(path))
	o.Endpoint = "unix://" + path
	o.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, syscall.ENOENT })}
}

// verdictAlert finds the verdicts on which an alert fires.
var (
	verdictAlert = regexp.MustCompile(`pleg_verdict_since_seconds\{([^}]*)\} > \d`)
	matcher      = regexp.MustCompile(`(\w+)=(~?)"([^"]*)"`)
)

// alerts returns the alerts of deploy/monitoring that a verdict fires once it is old enough.
func alerts(t *testing.T, told map[series]time.Time) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../../../deploy/monitoring/rules.yaml")
	kit.Must(t, err)
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	kit.Must(t, yaml.Unmarshal(text, &rules))
	for _, rule := range rules.Spec.Groups[0].Rules {
		if slices.ContainsFunc(verdictAlert.FindAllStringSubmatch(rule.Expr, -1), func(selector []string) bool {
			for of := range told {
				if !slices.ContainsFunc(matcher.FindAllStringSubmatch(selector[1], -1), func(m []string) bool {
					return !slices.Contains(strings.Split(m[3], "|"), map[string]string{"level": of.level, "cause": of.cause}[m[1]])
				}) {
					return true
				}
			}
			return false
		}) {
			names = append(names, rule.Alert)
		}
	}
	return names
}

// addWeb adds the pod shop/web-0.
func addWeb(t *testing.T, s *kit.Simulation) *pleg.PodStatus {
	t.Helper()
	return s.Node.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web-0", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})
}

// hangWeb adds a pod whose container hangs.
func hangWeb(t *testing.T, s *kit.Simulation) {
	t.Helper()
	s.Node.Inject(simruntime.Fault{RPC: "ContainerStatus", ID: addWeb(t, s).Containers[0].ID, Hang: true})
}

// serveDaemon serves a pipeline in memory and returns how to dial it.
func serveDaemon(t *testing.T, pipe *pipeline.Pipeline) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	daemon, err := server.New(pipe, server.Options{})
	kit.Must(t, err)
	var m kit.Memory
	listener := m.Listen()
	kit.Run(t, func(ctx context.Context) error { return daemon.Serve(ctx, listener) })
	return m.Dial
}

// clocks are the times in seconds that the screen shows beside the verdict.
var clocks = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// series is a series of the verdict's metric.
type series struct{ level, cause string }

// metric returns the times of the verdict in the metrics.
func metric(t *testing.T, p *kit.Pipeline) map[series]time.Time {
	t.Helper()
	families, err := p.Metrics.Gather()
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "pleg_verdict_since_seconds" })
	if err != nil || at < 0 {
		t.Fatalf("no verdict in the metrics: %v", err)
	}
	told := make(map[series]time.Time)
	for _, m := range families[at].GetMetric() {
		labels := m.GetLabel() // cause, level
		told[series{labels[1].GetValue(), labels[0].GetValue()}] = time.UnixMicro(int64(m.GetGauge().GetValue() * 1e6)).UTC()
	}
	return told
}

// surfaces returns the text of each surface, as one line. The doctor finds no runtime: it only
// knows the daemon's status.
func surfaces(t *testing.T, p *kit.Pipeline, dial func(context.Context, string) (net.Conn, error)) map[string]string {
	t.Helper()
	h := httpserver.Handler(httpserver.Options{Pipeline: p.Pipeline, Gatherer: p.Metrics, Logger: slog.New(slog.DiscardHandler)})
	get := func(path string) string {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return answer.Body.String()
	}
	var figures struct{ Verdict verdict.Verdict }
	if err := json.Unmarshal([]byte(get("/stages")), &figures); err != nil {
		t.Error(err)
	}
	said := map[string]string{"the page": figures.Verdict.Full(), "/readyz": get("/readyz?verbose"), "doctor --fleet": ofFleet(t, p.Look())}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, command := range []string{"doctor", "doctor --npd", "pods", "top"} {
		all.Go(func() {
			text := sayOf(t, command, dial)
			mu.Lock()
			defer mu.Unlock()
			said[command] = text
		})
	}
	all.Wait()
	return said
}

// sayOf returns the output of a command, as one line.
func sayOf(t *testing.T, command string, dial func(context.Context, string) (net.Conn, error)) string {
	t.Helper()
	out, term := newTranscript(), vt.NewMockTerm()
	process := cli.Process{
		Args: append(strings.Fields(command), "--connect", "socket"), Out: out, Err: out, Dial: dial,
		Getenv:   func(name string) string { return hostileEnvironment[name] },
		Pressure: fstest.MapFS{}, Cgroups: fstest.MapFS{},
		Terminal: func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(term) },
	}
	ended := make(chan int, 1)
	go func() { ended <- cli.Execute(t.Context(), process) }()
	if command == "top" {
		time.Sleep(200 * time.Millisecond)
		_, _ = out.Write([]byte(shown(term)))
		term.SendRaw([]byte("q"))
	}
	<-ended
	return strings.Join(strings.Fields(clocks.ReplaceAllString(out.String(), "")), " ")
}

// ofFleet returns the doctor's output for a cluster whose only node has published its status.
func ofFleet(t *testing.T, status pleg.Status) string {
	t.Helper()
	published, err := json.Marshal(verdict.Of(status))
	kit.Must(t, err)
	var v fleet.Verdict
	kit.Must(t, json.Unmarshal(published, &v))
	var text strings.Builder
	kit.Must(t, doctor.Rank([]fleet.Node{{Name: "node-a", Verdict: &v}}, time.Now()).Print(&text, doctor.TextOptions{}))
	return text.String()
}
