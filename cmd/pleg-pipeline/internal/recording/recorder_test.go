package recording_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestReplaySpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := scenario{pods: 5, simulated: simruntime.Options{Seed: 5, Profile: nodeProfile(t)}, play: churnSeed(3, 2, 60)}
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

// TestMissingEventsStayMissing opens the stream of a runtime without events again.
func TestMissingEventsStayMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stream = `{"at":"1s","method":"GetContainerEvents","stream":1`
		r, err := recording.Read(t.Context(), strings.NewReader(header+stream+"}\n"+stream+`,"ended":true,"error":{"code":"Unimplemented"}}`+"\n"+end))
		kit.Must(t, err)
		dial, _ := serving(t, recording.NewServer(r, 1).Serve)
		client, closeClient := newClient(t, dial)
		defer func() { _ = closeClient() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			events, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			if err == nil {
				_, err = events.Recv()
			}
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("the stream ends with %v, want Unimplemented", err)
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
		got := runPipeline(t, append(dial, recorder.DialOptions()...), pipeline.Options{}, false, func() {
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

// TestRecorderNeverBlocksEvents has more events than fit into the queue of an
// output that hangs. The client receives all of them, and the recording fails.
func TestRecorderNeverBlocksEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runtime, dial, stop := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{})
		unblock := make(chan struct{})
		out := output(func() error { <-unblock; return nil })
		recorder, written := startRecorder(out, recording.Options{Queue: 500})
		ctx, cancel := context.WithCancel(t.Context())
		received := receiveEvents(ctx, t, append(dial, recorder.DialOptions()...))
		synctest.Wait()
		for range 10 {
			if _, err := runtime.Populate(simruntime.Population{Pods: 20, Containers: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		dropped := runtime.Stats().DroppedEvents
		close(unblock)
		if err := <-written; err == nil || !strings.Contains(err.Error(), "as fast as") {
			t.Errorf("Run = %v, want that the output is too slow", err)
		}
		cancel()
		if n := <-received; n != 800 || dropped > 0 { // four of each pod
			t.Errorf("received %d events and %d were dropped, want all 800", n, dropped)
		}
		_ = stop()
	})
}

// receiveEvents sends the number of events that it received once ctx has ended.
func receiveEvents(ctx context.Context, t *testing.T, dial []grpc.DialOption) <-chan int {
	t.Helper()
	client, closeClient := newClient(t, dial)
	stream, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	kit.Must(t, err)
	received := make(chan int, 1)
	go func() {
		defer func() { _ = closeClient() }()
		n := 0
		for _, err := stream.Recv(); err == nil; _, err = stream.Recv() {
			n++
		}
		received <- n
	}()
	return received
}

func newClient(t *testing.T, dial []grpc.DialOption) (client runtimeapi.RuntimeServiceClient, closeClient func() error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///runtime", append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	return runtimeapi.NewRuntimeServiceClient(conn), conn.Close
}
