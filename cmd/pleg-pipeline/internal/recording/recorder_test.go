package recording_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A call that the client gave up after a second is in the recording as one without an answer. One that it gave up
// earlier says nothing about the runtime.
func TestCallsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]int{900 * time.Millisecond: 0, 1100 * time.Millisecond: 1} {
		synctest.Test(t, func(t *testing.T) {
			_, dial, stop := newRuntime(t, simruntime.Options{Faults: []simruntime.Fault{{RPC: "ListPodSandbox", Hang: true}}}, simruntime.Population{Pods: 1})
			var out memory
			recorder := recording.NewRecorder(&out, recording.Options{})
			client := connect(t, append(dial, recorder.DialOptions()...))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			_, _ = client.ListPods(ctx)
			_, _ = client.Close(), stop()
			recorder.Stop()
			kit.Must(t, recorder.Run())
			if n := strings.Count(out.String(), `"pending":true`); n != want {
				t.Errorf("given up after %v: %d calls without an answer, want %d:\n%s", after, n, want, &out)
			}
		})
	}
}

// flushed is what an output has passed on.
type flushed struct {
	memory
	length int
}

func (f *flushed) Flush() error {
	f.length = f.Len()
	return nil
}

// Each answer is passed on at once, with the time that the call took, so that it survives the process. A call for a status that is
// in flight at the end has no answer.
func TestRecorderThatIsKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runtime, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 1})
		var out flushed
		recorder := recording.NewRecorder(&out, recording.Options{})
		end := kit.Run(t, func(context.Context) error { return recorder.Run() })
		client := connect(t, append(dial, recorder.DialOptions()...))
		runtime.Inject(simruntime.Fault{RPC: "ListContainers", Latency: 2 * time.Second})
		pods, err := client.ListPods(t.Context())
		kit.Must(t, err)
		synctest.Wait()
		if text := out.String()[:out.length]; !strings.Contains(text, `"took":"2s","method":"ListContainers"`) {
			t.Errorf("after a list the output is %q", text)
		}
		if s, err := runtimev1.NewRuntimeServiceClient(client.Conn()).Status(t.Context(), &runtimev1.StatusRequest{}); err != nil || len(s.GetStatus().GetConditions()) == 0 {
			t.Errorf("a call that is not recorded returns %v, %v", s, err)
		}
		runtime.Inject(simruntime.Fault{RPC: "PodSandboxStatus", Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = client.PodStatus(ctx, pods[0], nil) }()
		synctest.Wait()
		recorder.Stop()
		kit.Must(t, end())
		cancel()
		if !strings.Contains(out.String(), `"method":"PodSandboxStatus","request"`) || !strings.Contains(out.String(), `"pending":true`) {
			t.Errorf("the status is not in the recording:\n%s", &out)
		}
		if strings.Contains(out.String(), `"method":"Status"`) {
			t.Errorf("the recording has the status of the runtime:\n%s", &out)
		}
		if answers, length := recorder.Totals(); answers != strings.Count(out.String(), `"method"`) || length != 2*time.Second {
			t.Errorf("%d answers in %v:\n%s", answers, length, &out)
		}
		_, _ = client.Close(), stop()
	})
}

// fullDisk takes so many lines.
type fullDisk struct {
	memory
	lines int
	// late is true if the error comes with Flush.
	late bool
}

var errFull = errors.New("no space left")

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.lines--; f.lines < 0 && !f.late {
		return 0, errFull
	}
	return f.memory.Write(p)
}

func (f *fullDisk) Flush() error {
	if f.lines < 0 && f.late {
		return errFull
	}
	return nil
}

// A recording that does not fit is an error: its header, its calls or its end.
func TestRecordingThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for lines := range 5 { // a header, a version, two lists and the end
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 1})
				recorder := recording.NewRecorder(&fullDisk{lines: lines, late: late}, recording.Options{})
				client := connect(t, append(dial, recorder.DialOptions()...))
				_, err := client.ListPods(t.Context())
				kit.Must(t, err)
				recorder.Stop()
				if err := recorder.Run(); !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), "write recording: ") {
					t.Errorf("%d lines fit: Run = %v, want %v", lines, err, errFull)
				}
				_, _ = client.Close(), stop()
			})
		}
	}
}

// TestRecorderNeverBlocks makes more calls than fit into the queue before anything is written. The
// client gets all answers, and the recording fails.
func TestRecorderNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 1})
		recorder := recording.NewShortRecorder(new(memory), 50)
		client := connect(t, append(dial, recorder.DialOptions()...))
		for range 50 {
			_, err := client.ListPods(t.Context())
			kit.Must(t, err)
		}
		time.Sleep(time.Second)
		if err := recorder.Run(); err == nil || !strings.Contains(err.Error(), "as fast as") {
			t.Errorf("Run = %v, want that the output is too slow", err)
		}
		if _, length := recorder.Totals(); length != time.Second {
			t.Errorf("it has recorded for %v, want until the error", length)
		}
		_, _ = client.Close(), stop()
	})
}

// The words and ids of a redacted file, which are different each time.
var aWord, anID = regexp.MustCompile(`\br[0-9a-f]{12}\b`), regexp.MustCompile(`\b[0-9a-f]{32}\b`)

// keys returns a map in which each key has a value of its own.
func keys(all ...string) map[string]string {
	m := make(map[string]string)
	for _, key := range all {
		m[key] = "of " + key
	}
	return m
}

// The file of a recorder, plain and redacted: lists, one that is the same, and one that is not; statuses, an error, and a call
// without an answer.
func TestFileOfARecorder(t *testing.T) {
	t.Parallel()
	for name, redact := range map[string]bool{"plain": false, "redacted": true} {
		synctest.Test(t, func(t *testing.T) {
			runtime, dial, stop := newRuntime(t, simruntime.Options{Seed: 1, Faults: simruntime.BusyNode()}, simruntime.Population{Pods: 1, Containers: 1})
			other := runtime.Pods()[0].Containers[0].ID
			runtime.AddPod(simruntime.PodSpec{
				UID: "secret-uid", Name: "secret-name", Namespace: "secret-namespace", Labels: keys("secret-label", "apps", "my-app", "app.kubernetes.io/other", "kubernetes.io/config.other",
					"app", "k8s-app", "component", "tier", "job-name", "controller-uid", "pod-template-hash", "controller-revision-hash", "statefulset.kubernetes.io/pod-name",
					"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/component", "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by",
					"batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
				Annotations: keys("secret-annotation", "kubernetes.io/config.hash", "kubernetes.io/config.mirror", "kubernetes.io/config.seen", "kubernetes.io/config.source"), Containers: []pleg.ContainerStatus{{Name: "secret-container", Image: "secret<image>"}},
			})
			time.Sleep(1500 * time.Millisecond)
			var out memory
			recorder := recording.NewRecorder(&out, recording.Options{Program: "v7", Redact: redact})
			client := connect(t, append(dial, recorder.DialOptions()...))
			for _, change := range []func(){
				func() {}, func() {},
				func() {
					runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", Code: codes.NotFound, Message: "no secret container", Times: 1})
				},
				func() { _, _ = runtime.RestartContainer(other) },
				func() { runtime.Inject(simruntime.Fault{RPC: "PodSandboxStatus", Hang: true}) },
			} {
				change()
				pods, err := client.ListPods(t.Context())
				kit.Must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(1100*time.Millisecond, cancel)
				_, _ = client.PodStatus(ctx, pods[slices.IndexFunc(pods, func(p *pleg.Pod) bool { return p.UID == "secret-uid" })], nil)
				time.Sleep(1234567 * time.Microsecond)
			}
			recorder.Stop()
			kit.Must(t, recorder.Run())
			_, _ = client.Close(), stop()
			if answers, _ := recorder.Totals(); answers != strings.Count(out.String(), `"method"`) {
				t.Errorf("%d answers and errors, want all:\n%s", answers, &out)
			}
			kit.Golden(t, "testdata/"+name+".golden", aWord.ReplaceAllString(anID.ReplaceAllString(out.String(), "ID"), "WORD"))
		})
	}
}

// What a replay does not have.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	dial, stop := serving(t, recording.NewServer(new(recording.Recording)).Serve)
	conn, err := grpc.NewClient("passthrough:replay", append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	defer conn.Close()
	for method, want := range map[string]error{
		"/runtime.v1.RuntimeService/Status":        status.Error(codes.Unimplemented, "a replay does not have /runtime.v1.RuntimeService/Status"),
		"/runtime.v1alpha2.RuntimeService/Version": status.Error(codes.Unimplemented, "a replay does not have /runtime.v1alpha2.RuntimeService/Version"),
		"/runtime.v1.RuntimeService/Version":       status.Error(codes.Unavailable, "the recording has no answer of Version for this"),
	} {
		if err := conn.Invoke(t.Context(), method, &runtimev1.VersionRequest{}, &runtimev1.VersionResponse{}); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v, want the cause of its end", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, errors.Join(err, l.Close()))
	if err := recording.NewServer(new(recording.Recording)).Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "serve a recording: ") {
		t.Errorf("Serve = %v, want that its listener is closed", err)
	}
}
