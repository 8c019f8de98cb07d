package recording_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestReplaySpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scenario{pods: 5, simulated: simruntime.Options{Seed: 5, Profile: simruntime.NodeProfile()}, play: churnSeed(3, 2, 60)}
		want, data := s.record(t)
		for speed, period := range map[float64]time.Duration{10: 100 * time.Millisecond, 0.25: 4 * time.Second} {
			began := time.Now()
			replayed(t, data, speed, pipeline.Options{RelistPeriod: period}, 0).requireEqual(t, want)
			if took, wanted := time.Since(began), time.Duration(float64(35*time.Second)/speed); took < wanted*9/10 || took > wanted*11/10+2*time.Second {
				t.Errorf("at speed %v it takes %v, want about %v", speed, took, wanted)
			}
		}
	})
}

// output calls a function for each write.
type output func() error

func (o output) Write(p []byte) (int, error) { return len(p), o() }

func (output) Flush() error { return nil }

// TestRecorderReturnsOutputError while the pipeline continues.
func TestRecorderReturnsOutputError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 3, Containers: 1})
		full := errors.New("no space left")
		recorder, written := startRecorder(output(func() error { return full }), recording.Options{})
		got := runPipeline(t, append(dial, recorder.DialOptions()...), pipeline.Options{}, func() {
			if err := <-written; !errors.Is(err, full) {
				t.Errorf("Run = %v, want %v", err, full)
			}
			time.Sleep(time.Minute) // more answers than fit into the queue
		})
		if got.total != 6 {
			t.Errorf("the pipeline has observed %d events, want 6", got.total)
		}
		_ = stop()
	})
}

// TestRecorderNeverBlocks makes more calls than fit into the queue of an output that hangs. The
// client gets all answers, and the recording fails.
func TestRecorderNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 1})
		unblock := make(chan struct{})
		out := output(func() error { <-unblock; return nil })
		recorder, written := startRecorder(out, recording.Options{Queue: 50})
		client, closeClient := newClient(t, append(dial, recorder.DialOptions()...))
		for range 100 {
			_, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			kit.Must(t, err)
		}
		close(unblock)
		if err := <-written; err == nil || !strings.Contains(err.Error(), "as fast as") {
			t.Errorf("Run = %v, want that the output is too slow", err)
		}
		_, _ = closeClient(), stop()
	})
}

func newClient(t *testing.T, dial []grpc.DialOption) (client runtimeapi.RuntimeServiceClient, closeClient func() error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///runtime", append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	return runtimeapi.NewRuntimeServiceClient(conn), conn.Close
}
