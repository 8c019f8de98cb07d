package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
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
		for _, command := range []string{"pods", "events", "events --replay", "lookup 7d1f --wait 10s"} {
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
					if text := out.String(); strings.HasPrefix(command, "lookup") && strings.Contains(text[strings.LastIndex(text, "look up"):], "waiting") {
						t.Errorf("%q says again why it has waited", text)
					}
				})
			})
		}
	}
}

// A command with its own pipeline waits 5 s for slow pods, and then shows what is known. Without a list it shows nothing.
func TestSettle(t *testing.T) {
	for want, s := range map[string]*plegv1.PipelineStatus{
		"<nil>":             {Healthy: true, Waiting: 1, Relist: &plegv1.RelistStatus{Success: timestamppb.Now()}},
		"list pods: broken": {Error: "list pods: broken"},
	} {
		kit.Bubble(t, want, func(t *testing.T) {
			h := &hostile.Daemon{
				OnWatch:  func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return silent(stream.Context()) },
				OnStatus: answer(&plegv1.GetStatusResponse{Status: s}, nil),
			}
			began := time.Now()
			if err := cli.Settle(t.Context(), serveHostile(t, "", h)); fmt.Sprint(err) != want || time.Since(began) != 5*time.Second {
				t.Errorf("%v after %v, want %s after 5s", err, time.Since(began), want)
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
