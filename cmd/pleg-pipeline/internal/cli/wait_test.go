package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// TestCommandsSayWhyTheyWait asks a daemon that does not know its pods yet. Within two seconds each
// command must say what is wrong with the runtime; none may say that the daemon does not answer.
func TestCommandsSayWhyTheyWait(t *testing.T) {
	for name, test := range map[string]struct {
		fault simruntime.Fault
		want  string
	}{
		"lists fail": {simruntime.Fault{RPC: "ListContainers", Code: codes.Internal, Message: "broken"}, ": the list of all pods fails since 00:00: list pods: list containers: broken"},
		"lists hang": {simruntime.Fault{RPC: "ListContainers", Hang: true}, "waiting for the first list of pods"},
		"pods hang":  {simruntime.Fault{RPC: "ContainerStatus", Hang: true}, "waiting for the inspection of 3 of 3 pods"},
	} {
		for _, command := range []string{"pods", "events", "events --replay", "lookup 7d1f --wait 10s", "lookup 7d1f --wait 500ms"} {
			t.Run(name+", "+command, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					node := simruntime.New(simruntime.Options{Seed: 1})
					node.Populate(simruntime.Population{Pods: 3, Containers: 1})
					node.Inject(test.fault)
					s := kit.Simulate(t, node, pipeline.Options{}, cri.Options{})
					dial := serveDaemon(t, s.Pipeline.Pipeline)
					time.Sleep(time.Second)
					out := newTranscript()
					ended := make(chan int, 1)
					go func() {
						ended <- cli.Execute(t.Context(), cli.Process{
							Args: append(strings.Fields(command), "--connect", "socket"), Out: out, Err: out, Dial: dial, Getenv: func(string) string { return "" },
						})
					}()
					time.Sleep(2100 * time.Millisecond)
					if text := out.String(); !strings.Contains(text, test.want) {
						t.Errorf("after 2.1s: %q, want %q", text, test.want)
					}
					defer func() {
						lines := slices.Sorted(strings.Lines(out.String()))
						if n := len(lines); len(slices.Compact(lines)) < n {
							t.Errorf("a line comes twice:\n%s", out)
						}
					}()
					if strings.HasPrefix(command, "events") {
						time.Sleep(2100 * time.Millisecond)
						return // the command waits forever
					}
					want := cli.ExitFailure
					if name == "pods hang" && command == "pods" { // it shows them
						want = cli.ExitOK
					}
					if code := <-ended; code != want || strings.Contains(out.String(), "the daemon does not answer") {
						t.Errorf("exit code %d, %q, want %d", code, out, want)
					}
					if text := out.String(); command == "lookup 7d1f --wait 10s" && strings.Contains(text[strings.LastIndex(text, "look up"):], "waiting") {
						t.Errorf("%q says again why it has waited", text)
					}
				})
			})
		}
	}
}

// A command with its own pipeline waits 5 s for slow pods, and then shows what is known. Without a list it shows nothing.
// It no longer waits once all pods are known, and asks no more.
func TestSettle(t *testing.T) {
	for _, test := range []struct {
		synced bool
		status *plegv1.PipelineStatus
		took   time.Duration
		want   string
	}{
		{false, &plegv1.PipelineStatus{Healthy: true, Waiting: 1, Relist: &plegv1.RelistStatus{Success: timestamppb.Now()}}, 5 * time.Second, "<nil>"},
		{false, &plegv1.PipelineStatus{Error: "list pods: broken"}, 5 * time.Second, "list pods: broken"},
		{true, &plegv1.PipelineStatus{Error: "list pods: broken"}, 0, "<nil>"},
	} {
		kit.Bubble(t, test.want, func(t *testing.T) {
			var asked atomic.Int64
			began := time.Now()
			h := &hostile.Daemon{OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
				asked.Store(int64(time.Since(began)))
				return &plegv1.GetStatusResponse{Status: test.status}, nil
			}}
			if !test.synced {
				h.OnWatch = func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return silent(stream.Context()) }
			}
			if took, err := cli.Settle(t.Context(), serveHostile(t, "", h)); fmt.Sprint(err) != test.want || took != test.took || asked.Load() > int64(took) {
				t.Errorf("%v after %v, asked for the status after %v, want %s after %v", err, took, time.Duration(asked.Load()), test.want, test.took)
			}
		})
	}
}

// TestWaitEndsWhenOnlyHungPodsAreMissing decides whether "pods" waits for more pods.
func TestWaitEndsWhenOnlyHungPodsAreMissing(t *testing.T) {
	hung := pleg.Inspection{UID: "hung", Hung: true}
	slow := pleg.Inspection{UID: "slow"}
	away := pleg.Quarantined{UID: "away"}
	retried := pleg.Quarantined{UID: hung.UID}
	for name, test := range map[string]struct {
		status pleg.Status
		want   bool
	}{
		"before the first list":     {},
		"one hangs":                 {status: pleg.Status{Waiting: 1, Overdue: []pleg.Inspection{hung}}, want: true},
		"one waits in quarantine":   {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung}, Quarantined: []pleg.Quarantined{away}}, want: true},
		"one is slow":               {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung, slow}}},
		"the same is counted once":  {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung}, Quarantined: []pleg.Quarantined{retried}}},
		"an idle pod in quarantine": {status: pleg.Status{Overdue: []pleg.Inspection{hung}}},
	} {
		if got := cli.OnlyHung(test.status); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// What commands say of a daemon that says little. A row without an exit code still runs after that time.
func TestWhatCommandsSay(t *testing.T) {
	silence := func() *hostile.Daemon { return hostileDaemons()["no answers"] }
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of each bubble
	started := func(seq uint64, name string, ago time.Duration) *plegv1.Event {
		return &plegv1.Event{
			Epoch: "e", Seq: seq, Type: plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, PodUid: "u-" + name, PodNamespace: "shop", PodName: name,
			ContainerId: "c-" + name, ContainerName: "app", ObservedAt: timestamppb.New(began.Add(-ago)),
		}
	}
	synced := &plegv1.Event{Epoch: "e", Seq: 1, Type: plegv1.EventType_EVENT_TYPE_SYNCED}
	watch := func(events ...*plegv1.Event) func() *hostile.Daemon {
		return func() *hostile.Daemon { return &hostile.Daemon{OnWatch: hostile.Events(events...)} }
	}
	lists := func(list func(hostile.ListStream) error) func() *hostile.Daemon {
		return func() *hostile.Daemon {
			return &hostile.Daemon{OnWatch: hostile.Events(synced, started(2, "a", 0), started(3, "b", 0)), OnList: list}
		}
	}
	b := &plegv1.Pod{Uid: "u-b", CurrentAsOf: timestamppb.New(began), Status: &plegv1.PodStatus{Uid: "u-b", Namespace: "shop", Name: "b"}}
	breaks := func(second ...*plegv1.Event) func() *hostile.Daemon {
		return func() *hostile.Daemon {
			watched := 0
			return &hostile.Daemon{OnWatch: func(r *plegv1.WatchRequest, stream hostile.WatchStream) error {
				if watched++; watched > 1 {
					return hostile.Events(second...)(r, stream)
				}
				for _, ev := range []*plegv1.Event{synced, started(2, "a", 0)} {
					if err := stream.Send(&plegv1.WatchResponse{Event: ev}); err != nil {
						return err
					}
				}
				return status.Error(codes.Unavailable, "it restarts")
			}}
		}
	}
	waits := func(of *plegv1.PipelineStatus) func() *hostile.Daemon {
		return func() *hostile.Daemon {
			return &hostile.Daemon{
				OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return silent(stream.Context()) },
				OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
					time.Sleep(time.Millisecond) // no answer comes at the same time as a deadline
					return &plegv1.GetStatusResponse{Status: of}, nil
				},
			}
		}
	}
	now := timestamppb.New(began)
	looksUp := func(err error, and func(context.Context) (*plegv1.GetStatusResponse, error)) func() *hostile.Daemon {
		return func() *hostile.Daemon {
			return &hostile.Daemon{OnStatus: and, OnLookup: answer(&plegv1.LookupResponse{PodUid: "u1"}, err)}
		}
	}
	failing := answer(&plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{At: now, Error: "list pods: broken", Relist: &plegv1.RelistStatus{Success: now}}}, nil)
	for _, test := range []struct {
		args           string
		daemon         func() *hostile.Daemon
		after          time.Duration
		code           int
		stdout, stderr string
		position       string // at the end
	}{
		{"events -o name", silence, 9500 * time.Millisecond, -1, "", "", ""},
		{"events -o name", silence, 10500 * time.Millisecond, -1, "", "waiting for the daemon: it has sent nothing for 10s\n", ""},
		{"pods", silence, 30 * time.Second, 1, "", "the daemon does not answer\n", ""},
		{"lookup --pid 1", silence, 32 * time.Second, 1, "", "the daemon does not answer\n", ""},
		{"lookup c", looksUp(status.Error(codes.FailedPrecondition, "not yet"), failing), 0, 1, "", "not yet: waiting: PROBLEM: the node is not healthy: list pods: broken\n", ""},
		{"lookup c", looksUp(status.Error(codes.FailedPrecondition, "not yet"), nil), 0, 1, "", "not yet\n", ""},
		{"lookup c", looksUp(status.Error(codes.NotFound, "no container"), failing), 0, 1, "", "no container\n", ""},
		{"lookup c", looksUp(nil, answer((*plegv1.GetStatusResponse)(nil), status.Error(codes.Internal, "it is broken"))), 0, 1, "", "status of the pipeline: it is broken\n", ""},
		{"events -o name", waits(&plegv1.PipelineStatus{At: now, Healthy: true, Waiting: 2, Relist: &plegv1.RelistStatus{Success: now, Pods: 5}}), 1900 * time.Millisecond, -1, "", "", ""},
		{
			"events -o name", waits(&plegv1.PipelineStatus{At: now, Healthy: true, Waiting: 2, Relist: &plegv1.RelistStatus{Success: now, Pods: 5}}), 2100 * time.Millisecond, -1, "",
			"waiting for the inspection of 2 of 5 pods\n", "",
		},
		{ // a runtime in trouble is named at once
			"events -o name", waits(&plegv1.PipelineStatus{
				At: now, Healthy: true, Relist: &plegv1.RelistStatus{Success: now, Pods: 5},
				Quarantined: []*plegv1.QuarantinedPod{{Uid: "u1", Namespace: "shop", Name: "web-0", Since: timestamppb.New(began.Add(-time.Minute)), Hung: 2}},
			}), 1100 * time.Millisecond, -1, "", "waiting: PROBLEM: shop/web-0 hangs since 23:59\n", "",
		},
		{ // a reason that changes is told again, and one that ends is no silence
			"events -o name", func() *hostile.Daemon {
				h := waits(nil)()
				h.OnStatus = func(context.Context) (*plegv1.GetStatusResponse, error) {
					ago := time.Since(began)
					if ago > 6*time.Second {
						return nil, status.Error(codes.Internal, "broken")
					}
					return &plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{
						At: now, Healthy: true, Waiting: 7 - uint32(ago/(4*time.Second)), Relist: &plegv1.RelistStatus{Success: now, Pods: 9},
					}}, nil
				}
				return h
			}, time.Minute, -1, "", "waiting for the inspection of 7 of 9 pods\nwaiting for the inspection of 6 of 9 pods\n", "",
		},
		{ // newer pods than those of the list
			"events -o name", waits(&plegv1.PipelineStatus{At: now, Healthy: true, Waiting: 4, Relist: &plegv1.RelistStatus{Success: now, Pods: 3}}), time.Minute, -1, "",
			"waiting for the inspection of 4 of 4 pods\n", "",
		},
		{
			"pods", waits(&plegv1.PipelineStatus{At: now, Healthy: true}), 30 * time.Second, 1, "",
			"waiting for the first list of pods\nno answer within 30s: waiting for the first list of pods\n", "",
		},
		{
			"events -o name", breaks(started(3, "b", 0)), time.Minute, -1, "shop/a\nshop/b\n",
			"waiting for the daemon: receive: it restarts\nconnected to the daemon: no events are missing\n", "e:3",
		},
		{
			"events -o name", breaks(&plegv1.Event{Type: plegv1.EventType_EVENT_TYPE_GAP, Epoch: "e", Seq: 3, Reason: "HistoryTooShort"}, started(4, "b", 0)), time.Minute, -1,
			"shop/a\nshop/b\n", "waiting for the daemon: receive: it restarts\nconnected to the daemon: events are missing: the history no longer has them\n", "e:4",
		},
		{
			"events --no-headers --since 1h --pod b --pod c", watch(started(2, "a", 10*time.Minute), started(3, "b", 0)), time.Second, -1,
			"00:00:00.000  ContainerStarted  shop         b                                 app               0        c-b\n",
			"the daemon has events since 1999-12-31 23:50:00, and what it found then\nno pod has the name b, c; waiting for one\n", "e:3",
		},
		{"events --no-headers --since 5m --pod b", watch(started(2, "a", 10*time.Minute)), time.Second, -1, "", "no pod has the name b; waiting for one\n", "e:2"},
		{"events -o name --since 1h -n x -n y", watch(started(2, "a", 10*time.Minute)), time.Second, -1, "shop/a\n", "no pod is in the namespace x, y; waiting for one\n", "e:2"},
		{ // pods that hang are awaited for half a second; each answer takes a millisecond
			"pods -o name", waits(&plegv1.PipelineStatus{
				At: now, Healthy: true, Waiting: 1, Relist: &plegv1.RelistStatus{Success: now, Pods: 1},
				Overdue: []*plegv1.Inspection{{PodUid: "u1", PodNamespace: "shop", PodName: "web-0", Started: timestamppb.New(began.Add(-time.Minute)), Hung: true}},
			}), 502 * time.Millisecond, 0, "shop/web-0\n", "PROBLEM: shop/web-0 hangs since 23:59 (60s)\n", "",
		},
		{"events -o name --follow=false --pod b", watch(synced), 0, 0, "", "", ""},
		{"events -o name --pod b", lists(sendPods(b)), time.Second, -1, "shop/b\n", "", "e:3"},
		{"events -o name --pod u-b", lists(sendPods(b)), time.Second, -1, "shop/b\n", "", "e:3"},
		{"events -o name --pod c", lists(sendPods(b)), time.Second, -1, "", "no pod has the name c; waiting for one\n", "e:3"},
		{"events -o name --pod d", lists(func(hostile.ListStream) error { return status.Error(codes.Internal, "broken") }), time.Second, -1, "", "", "e:3"},
		{"pods -o name b c", watch(synced), 0, 1, "", "no pod has the name b, c\n", ""},
	} {
		kit.Bubble(t, test.args, func(t *testing.T) {
			out := newTranscript()
			s := startIn(t, cli.Process{Dial: serveHostile(t, "", test.daemon())}, out, append(strings.Fields(test.args), "--connect", "socket")...)
			check := func(stderr string) {
				if got := strings.ReplaceAll(s.stderr.String(), "pleg-pipeline: ", ""); out.String() != test.stdout || got != stderr {
					t.Errorf("stdout %q, stderr %q, want %q and %q", out, got, test.stdout, stderr)
				}
			}
			if test.code >= 0 {
				s.ends(t, test.code)
				if took := time.Since(began); took != test.after {
					t.Errorf("it took %v, want %v", took, test.after)
				}
				check(test.stderr)
				return
			}
			time.Sleep(test.after)
			synctest.Wait()
			check(test.stderr)
			s.stopAndWait(t)
			if test.position != "" {
				check(test.stderr + "context canceled: to continue, use --since " + test.position + "\n")
			}
		})
	}
}

// A daemon that stops while it is asked. What it is stopped by is told; a daemon whose process could answer is only late.
func TestDaemonStopsWhileItIsAsked(t *testing.T) {
	_, socket := kit.Socket(t)
	for state, want := range map[string]string{
		"S": "the daemon does not answer",
		"T": fmt.Sprintf("the daemon at socket does not answer: its process %d is stopped (state T); continue it (kill -CONT %[1]d)", os.Getpid()),
	} {
		kit.Bubble(t, state, func(t *testing.T) {
			var sees machine
			is := func(state string) {
				sees.Store(&host.Options{Proc: fstest.MapFS{"self/stat": {}, fmt.Sprintf("%d/stat", os.Getpid()): {Data: []byte("1 (x) " + state + " 1")}}})
			}
			is("S")
			time.AfterFunc(20*time.Second, func() { is(state) })
			began, asks := time.Now(), serveHostile(t, "", &hostile.Daemon{OnStatus: hostileDaemons()["no answers"].OnStatus})
			p := cli.Process{Proc: &sees, Dial: func(ctx context.Context, path string) (net.Conn, error) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				if at, ok := ctx.Deadline(); ok && time.Until(at) <= 2*time.Second { // only connects, which takes no time
					return net.Dial("unix", socket)
				}
				return asks(ctx, path)
			}}
			code, _, stderr := execute(t, p, "lookup", "--pid", "1", "--connect", "socket")
			if took := time.Since(began); code != 1 || stderr != "pleg-pipeline: "+want+"\n" || took != 30*time.Second {
				t.Errorf("exit code %d after %v, %q, want %q", code, took, stderr, want)
			}
		})
	}
}

// A connection takes at most two seconds, that to a NATS server five, and the search for a runtime begins again each second.
func TestTimesOfConnections(t *testing.T) {
	refusing := listen(t, nil, func(conn net.Conn, _ io.Writer) {
		defer conn.Close()
		fmt.Fprint(conn, "INFO {}\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprint(conn, "-ERR 'Authorization Violation'\r\n")
				return
			}
		}
	})
	for _, args := range []string{"pods", "fleet create", "fleet forget n1"} {
		for server, why := range map[string]string{"127.0.0.1:1": "no server answers", refusing: "nats: Authorization Violation"} {
			kit.Bubble(t, args+" "+why, func(t *testing.T) {
				began := time.Now()
				code, _, stderr := run(t, append(strings.Fields(args), "--fleet", "nats://"+server, "--cluster", "c")...)
				if took := time.Since(began); code != 1 || stderr != "pleg-pipeline: --fleet nats://"+server+": "+why+"\n" || took.Round(time.Second) != 5*time.Second {
					t.Errorf("exit code %d after %v, %q", code, took, stderr)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began, dialed := time.Now(), ""
		p := cli.Process{Dial: func(ctx context.Context, socket string) (net.Conn, error) {
			dialed = socket
			<-ctx.Done()
			return nil, os.ErrDeadlineExceeded
		}}
		if code, _, stderr := execute(t, p, "pods"); code != 1 || !strings.HasSuffix(stderr, ": the daemon does not answer\n") || time.Since(began) != 2*time.Second {
			t.Errorf("exit code %d after %v, %q, %q", code, time.Since(began), dialed, stderr)
		}
		blocked, w := io.Pipe() // the reader of the output is awaited for a second
		s := startIn(t, cli.Process{Dial: serveHostile(t, "", &hostile.Daemon{})}, w, "events", "--replay", "--connect", "socket")
		synctest.Wait()
		began = time.Now()
		if s.stopAndWait(t); time.Since(began) != time.Second {
			t.Errorf("it ended after %v: %s", time.Since(began), s.stderr)
		}
		_ = blocked.Close()
		var looks atomic.Int32
		p = cli.Process{Sockets: []string{}, Getenv: func(name string) string {
			if name == endpoint.EnvEndpoint {
				looks.Add(1)
			}
			return ""
		}}
		s = startIn(t, p, io.Discard, "run", "--wait-for-runtime")
		time.Sleep(10500 * time.Millisecond)
		s.stopAndWait(t)
		if n, want := looks.Load(), "\npleg-pipeline: context canceled before there was an answer\n"; n != 11 || !strings.HasSuffix(s.stderr.String(), want) {
			t.Errorf("%d looks for a runtime within 10.5 s, %q, want 11 and %q", n, s.stderr, want)
		}
	})
}
