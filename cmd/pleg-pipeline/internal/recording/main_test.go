package recording_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("", 2*60*60) // names of files are in UTC, and other texts are not
	goleak.VerifyTestMain(m)
}

type memory struct{ bytes.Buffer }

func (*memory) Flush() error { return nil }

// serving runs serve on an in-memory listener until stop is called or the test ends, and
// returns the dial options of clients.
func serving(t *testing.T, serve func(context.Context, net.Listener) error) (dial []grpc.DialOption, stop func() error) {
	t.Helper()
	to, stop := kit.Serve(t, serve)
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return to(ctx) })}, stop
}

// observed contains the events that a subscriber of a pipeline received.
type observed struct {
	events map[pleg.PodUID][]string // of each pod in order
	states map[pleg.PodUID]string   // the cache in the end
	total  int
}

func runPipeline(t *testing.T, dial []grpc.DialOption, o pipeline.Options, end func()) observed {
	t.Helper()
	client := connect(t, dial)
	defer client.Close()
	o.Runtime = client
	pipe := kit.New(t, o)
	events := pipe.Events(t, 100_000)
	pipe.Start(t)
	end()
	_ = pipe.Stop() // Run reports the error
	s := observed{events: make(map[pleg.PodUID][]string), states: make(map[pleg.PodUID]string)}
	for ev := range events {
		s.events[ev.PodUID] = append(s.events[ev.PodUID], fmt.Sprintf("%s %.8s %s %d %s", ev.Type, ev.ContainerID, ev.ContainerName, exitCode(ev), ev.Reason))
		s.total++
	}
	for _, known := range pipe.Cache().List() {
		s.states[known.UID] = describe(t, known)
	}
	return s
}

// connect returns a client that has made its first call.
func connect(t *testing.T, dial []grpc.DialOption) *cri.Client {
	t.Helper()
	client, err := cri.New("/in-memory", cri.Options{DialOptions: dial, StatusTimeout: 5 * time.Second})
	kit.Must(t, err)
	if _, err := client.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client
}

func exitCode(ev pleg.Event) int32 {
	if ev.ExitCode == nil {
		return -1
	}
	return *ev.ExitCode
}

// describe returns everything in a cache entry except the time, and the addresses of a
// pod that is not ready: only a pipeline that saw it ready knows them.
func describe(t *testing.T, known cache.Entry) string {
	t.Helper()
	if known.Status == nil {
		return fmt.Sprint(known.Err)
	}
	timeless := *known.Status
	timeless.ObservedAt = time.Time{}
	if !timeless.SandboxReady() {
		timeless.IPs = nil
	}
	text, err := json.Marshal(timeless)
	kit.Must(t, err)
	return fmt.Sprintf("%s %v", text, known.Err)
}

func (s observed) requireEqual(t *testing.T, want observed) {
	t.Helper()
	requireSame(t, "events", s.events, want.events)
	requireSame(t, "cache", s.states, want.states)
}

func requireSame[V any](t *testing.T, what string, got, want map[pleg.PodUID]V) {
	t.Helper()
	for uid := range want {
		if !reflect.DeepEqual(got[uid], want[uid]) {
			t.Errorf("pod %s: %s of the replay\n\t%v\nwant\n\t%v", uid, what, got[uid], want[uid])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s of %d pods, want %d", what, len(got), len(want))
	}
}

// newRuntime returns a runtime that serves until stop is called.
func newRuntime(
	t *testing.T, o simruntime.Options, p simruntime.Population,
) (runtime *simruntime.Runtime, dial []grpc.DialOption, stop func() error) {
	t.Helper()
	runtime = simruntime.New(o)
	runtime.Populate(p)
	dial, stop = serving(t, runtime.Serve)
	return runtime, dial, stop
}

// scenario is a runtime, and a pipeline on it that is recorded.
type scenario struct {
	simulated simruntime.Options
	pods      int
	options   pipeline.Options
	redact    bool
	window    bool // the recording is the final content of a window
	// play changes the runtime, and returns once the pipeline has observed all changes.
	play func(*testing.T, *simruntime.Runtime)
}

// record returns the observations of the pipeline, and the recording.
func (s scenario) record(t *testing.T) (observed, []byte) {
	t.Helper()
	runtime, dial, stop := newRuntime(t, s.simulated, simruntime.Population{Pods: s.pods, Containers: 2})
	var out memory
	tap, finish := s.startRecording(t, &out)
	got := runPipeline(t, append(dial, tap...), s.options, func() {
		s.play(t, runtime)
		finish()
	})
	_ = stop()
	return got, out.Bytes()
}

// startRecording returns the options that tap a client, and a function that ends the recording.
func (s scenario) startRecording(t *testing.T, out *memory) (tap []grpc.DialOption, finish func()) {
	t.Helper()
	if !s.window {
		recorder := recording.NewRecorder(out, recording.Options{Program: "test", Redact: s.redact})
		written := make(chan error, 1)
		go func() { written <- recorder.Run() }()
		return recorder.DialOptions(), func() {
			recorder.Stop()
			kit.Must(t, <-written)
		}
	}
	incidents, err := recording.NewIncidents(t.TempDir(), "test")
	kit.Must(t, err)
	incidents.KeepTexts()
	stop := kit.Run(t, func(ctx context.Context) error {
		return incidents.Run(ctx, func() pleg.Status { return pleg.Status{} }, slog.New(slog.DiscardHandler))
	})
	return incidents.DialOptions(), func() {
		_ = stop()
		kit.Must(t, incidents.Save(out))
	}
}

// replayed returns the observations of a pipeline on a recording. Its first list may come late, as
// on a busy machine.
func replayed(t *testing.T, data []byte, o pipeline.Options, late time.Duration) observed {
	t.Helper()
	r, err := recording.Read(t.Context(), bytes.NewReader(data))
	kit.Must(t, err)
	server := recording.NewServer(r)
	dial, _ := serving(t, server.Serve)
	_ = connect(t, dial).Close() // starts the clock
	time.Sleep(late)
	return runPipeline(t, dial, o, func() { _ = server.WaitPlayed(t.Context()) })
}

// churn changes the runtime for a while, and then waits for the pipeline.
func churn(rate float64, actions int) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, runtime *simruntime.Runtime) {
		kit.Must(t, runtime.Churn(t.Context(), simruntime.ChurnOptions{Seed: 3, Rate: rate, Actions: actions}))
		time.Sleep(5 * time.Second) // of the bubble
	}
}
