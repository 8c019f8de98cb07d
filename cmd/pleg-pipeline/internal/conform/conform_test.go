package conform_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/conform"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(endpoint string, only ...string) conform.Options {
	return conform.Options{Endpoint: endpoint, Image: "image", CallTimeout: 10 * time.Second, Settle: 2 * time.Second, Only: only}
}

func (f *fake) pods() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sandboxes)
}

// A runtime that keeps every promise passes, and nothing is left on it.
func TestHonestRuntime(t *testing.T) {
	t.Parallel()
	f := &fake{}
	o := options(serveFake(t, f))
	o.Stop = func(context.Context) error { return nil }
	o.Start = o.Stop
	o.Skip = []string{"reconnect"} // this runtime keeps no events for a client that is away
	report, err := conform.Run(t.Context(), o)
	kit.Must(t, err)
	for _, row := range report.Rows {
		if want := conform.Kept; row.Verdict != want && row.ID != "events-off" {
			t.Errorf("%s is %s (%s), want %s", row.ID, row.Verdict, row.Evidence, want)
		}
		if row.Promise == "" || row.Source == "" || row.Evidence == "" || row.Pipeline == "" {
			t.Errorf("%+v lacks a text", row)
		}
	}
	if !report.Conforms() || len(report.Rows) < 20 || f.pods() != 0 {
		t.Errorf("conforms is %v with %d promises, %d pods are left; want true, 20 or more, and none", report.Conforms(), len(report.Rows), f.pods())
	}
	var out bytes.Buffer
	if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "19 kept, 0 broken, 0 not offered, 1 not tested\n") {
		t.Errorf("the report is\n%s", &out)
	}
}

type event = runtimeapi.ContainerEventResponse

// drop loses the events that are like this.
func drop(which func(client int, e *event) bool) func(int, *event) []*event {
	return func(client int, e *event) []*event {
		if which(client, e) {
			return nil
		}
		return []*event{e}
	}
}

func isSandbox(e *event) bool { return e.GetContainerId() == e.GetPodSandboxStatus().GetId() }

// Each broken promise is found.
func TestBrokenPromises(t *testing.T) {
	for id, f := range map[string]*fake{
		"events-off":       {eventsEnd: func() error { return nil }},
		"container-events": {events: drop(func(_ int, e *event) bool { return !isSandbox(e) && e.GetContainerEventType() == started })},
		"sandbox-events":   {events: drop(func(_ int, e *event) bool { return isSandbox(e) && e.GetContainerEventType() == deleted })},
		"order":            {events: swapped()},
		"once":             {events: func(_ int, e *event) []*event { return []*event{e, e} }},
		"every-client":     {events: drop(func(client int, e *event) bool { return client%2 == 0 && e.GetContainerEventType() == stopped })},
		"complete": {events: func(_ int, e *event) []*event {
			return []*event{{ContainerId: e.GetContainerId(), ContainerEventType: e.GetContainerEventType(), PodSandboxStatus: e.GetPodSandboxStatus()}}
		}},
		"agree": {events: func(_ int, e *event) []*event {
			for _, c := range e.GetContainersStatuses() {
				c.State = runtimeapi.ContainerState_CONTAINER_CREATED
			}
			return []*event{e}
		}},
		"read-after": {events: func(_ int, e *event) []*event { // the end is announced too soon
			if e.GetContainerEventType() == created && isSandbox(e) {
				e = &event{ContainerId: e.GetContainerId(), ContainerEventType: stopped, PodSandboxStatus: e.GetPodSandboxStatus(), CreatedAt: e.GetCreatedAt()}
			}
			return []*event{e}
		}},
		"created-at": {events: func(_ int, e *event) []*event {
			return []*event{{
				ContainerId: e.GetContainerId(), ContainerEventType: e.GetContainerEventType(), PodSandboxStatus: e.GetPodSandboxStatus(),
				CreatedAt: -e.GetCreatedAt(),
			}}
		}},
		"final-exit": {firstExit: func(st *runtimeapi.ContainerStatus) { st.Reason = "Error" }},
		"streaming-lists": {list: func(r *runtimeapi.ListContainersResponse) {
			r.Containers = append(r.Containers, &runtimeapi.Container{Id: "extra"})
		}},
		"filters":    {list: func(r *runtimeapi.ListContainersResponse) { r.Containers = nil }},
		"not-found":  {unknown: codes.Unknown},
		"large-list": {maxList: 50},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			report, err := conform.Run(t.Context(), options(serveFake(t, f), id))
			kit.Must(t, err)
			if len(report.Rows) != 1 || report.Rows[0].Verdict != conform.Broken || report.Conforms() {
				t.Errorf("got %+v, want that it is broken", report.Rows)
			}
			if f.pods() != 0 {
				t.Errorf("%d pods are left", f.pods())
			}
		})
	}
}

// swapped sends each event of a container after the next one.
func swapped() func(int, *event) []*event {
	held := make(map[int]*event)
	return func(client int, e *event) []*event {
		if isSandbox(e) {
			return []*event{e}
		}
		if h := held[client]; h != nil {
			delete(held, client)
			return []*event{e, h}
		}
		held[client] = e
		return nil
	}
}

// A runtime that does not offer something breaks no promise.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	f := &fake{eventsEnd: func() error { return status.Error(codes.Unimplemented, "no events") }}
	report, err := conform.Run(t.Context(), options(serveFake(t, f), "events-off", "order", "exit-while-down"))
	kit.Must(t, err)
	var got []conform.Verdict
	for _, row := range report.Rows {
		got = append(got, row.Verdict)
	}
	if want := []conform.Verdict{conform.Kept, conform.NotOffered, conform.NotTested}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The pods are removed, however the run ends.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fake{}
	endpoint := serveFake(t, f)
	o := options(endpoint, "filters", "final-exit")
	o.Progress = func(id string) {
		if id == "final-exit" { // comes first; its pod does not exist yet
			return
		}
		if f.pods() == 0 {
			t.Error("there is no pod to remove")
		}
		cancel(interrupted)
	}
	if _, err := conform.Run(ctx, o); !errors.Is(err, interrupted) {
		t.Errorf("an interrupted run returns %v", err)
	}
	if f.pods() != 0 {
		t.Errorf("%d pods are left", f.pods())
	}

	for run, left := range map[string]int{"0-dead": 0, "1-alive": 1} {
		labels := map[string]string{"io.kubernetes.pod.namespace": conform.Namespace, "pleg-pipeline.conform/run": run}
		if _, err := f.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Labels: labels}}); err != nil {
			t.Fatal(err)
		}
		if _, err := conform.Run(t.Context(), options(endpoint, "not-found")); err != nil {
			t.Fatal(err)
		}
		if f.pods() != left {
			t.Errorf("after a run beside %s there are %d pods, want %d", run, f.pods(), left)
		}
		clear(f.sandboxes)
	}
}

// A runtime may make a pod although the call was cancelled. So the call is not cancelled: it
// ends before the pods are removed.
func TestCleanUpWaitsForThePodThatIsMade(t *testing.T) {
	t.Parallel()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended, made := make(chan struct{}), make(chan struct{})
	f := &fake{}
	f.run = func(call context.Context) {
		defer close(made)
		cancel(interrupted)
		select {
		case <-call.Done():
			<-ended
		case <-time.After(200 * time.Millisecond): // the call is not cancelled
		}
	}
	if _, err := conform.Run(ctx, options(serveFake(t, f), "not-found", "filters")); !errors.Is(err, interrupted) {
		t.Errorf("an interrupted run returns %v", err)
	}
	close(ended)
	<-made
	if f.pods() != 0 {
		t.Errorf("%d pods are left", f.pods())
	}
}

// Without the image nothing is tried.
func TestNoImage(t *testing.T) {
	t.Parallel()
	o := options(serveFake(t, &fake{}))
	o.Image = "other"
	if _, err := conform.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the runtime has no image other") {
		t.Errorf("got %v", err)
	}
}
