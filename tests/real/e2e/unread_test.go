//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

const (
	// largeEvent is the size of an event that fills a gRPC stream which nobody reads.
	largeEvent = 80 << 10
	// mostCreations is more than containerd's queue of a client holds: 100 events.
	mostCreations = 150
	// silentWithin is the time after hung starts in which a silent runtime must be found.
	silentWithin = 2 * time.Minute
)

// A client that runs and never reads the events of containerd stops all starts. The kernel does not show it, and
// with events off the daemon opens no stream. The trouble is still found, and ends with the client.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	if traits := lab.DefaultRuntime().Traits(); !traits.AllEvents || traits.EventsToOne {
		t.Skip("needs a runtime that waits for its clients")
	}
	ctx, f := newFixture(t, lab.Options{})
	pod, err := f.lab.RunPod(ctx, lab.PodSpec{Name: "web-0", Namespace: "shop", HostNetwork: true, Annotations: map[string]string{"large": strings.Repeat("x", largeEvent)}})
	must(t, err)
	in := f.run(ctx, instanceOptions{name: "daemon", release: true})
	must(t, in.awaitHealth(ctx))
	conn, err := grpc.NewClient(f.lab.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	must(t, err)

	create := func(n int) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := f.lab.CreateContainer(ctx, pod, lab.ContainerSpec{Name: fmt.Sprint("c", n), Program: lab.Pause()})
		return err
	}
	n := 0
	for err = nil; err == nil && n < mostCreations; n++ {
		err = create(n)
	}
	if status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("creation %d: %v, want that it hangs", n, err)
	}
	began := time.Now()
	want := []string{"PROBLEM: a client does not read the events of the runtime since ", "starts wait, and none of ", fmt.Sprintf("e2e.test (PID %d)", os.Getpid())}
	says := func() string {
		s, err := in.status(ctx)
		if err != nil {
			return err.Error()
		}
		return verdict.Of(s).Text
	}
	for text := ""; !strings.HasPrefix(text, want[0]); text = says() {
		if time.Since(began) > silentWithin {
			t.Fatalf("after %v: %s", silentWithin, text)
		}
		_ = create(n) // as a kubelet that tries again
		n++
	}
	t.Logf("FIGURE after %d events and %v: %s", n, time.Since(began).Round(time.Second), says())
	for _, part := range want {
		if text := says(); !strings.Contains(text, part) {
			t.Errorf("%s, want %s", text, part)
		}
	}
	report, _ := program(ctx, "doctor", "--connect", in.Socket)
	if !strings.HasPrefix(report, want[0]) {
		t.Errorf("the doctor says %s", report)
	}
	must(t, conn.Close())
	must(t, eventually(ctx, func() bool { return strings.HasPrefix(says(), healthy) }))
}
