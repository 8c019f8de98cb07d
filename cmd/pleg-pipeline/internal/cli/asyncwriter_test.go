package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	kitprocess "github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// gated is a reader of stderr that sleeps until its gate opens.
type gated struct {
	io.Writer
	gate <-chan struct{}
}

func (g gated) Write(p []byte) (int, error) {
	<-g.gate
	return g.Writer.Write(p)
}

// TestRunDoesNotWaitForStderr runs a daemon whose stderr nobody reads.
func TestRunDoesNotWaitForStderr(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, code := newTranscript(), make(chan int, 1)
	go func() {
		code <- cli.Execute(ctx, cli.Process{Args: []string{"run", "--simulate=2"}, Out: out, Err: gated{io.Discard, gate}})
	}()
	out.await(t, "(sandbox)")
	stop()
	if got := <-code; got != cli.ExitOK {
		t.Errorf("exit code %d, want %d", got, cli.ExitOK)
	}
}

// TestRunCountsDroppedLines lets nobody read stderr while a runtime lists containers without their sandboxes.
func TestRunCountsDroppedLines(t *testing.T) {
	t.Parallel()
	listener, path := kit.Socket(t)
	runtime := &rawruntime.Runtime{}
	for n := range 1500 {
		id := fmt.Sprint("c", n)
		runtime.Containers = append(runtime.Containers, &runtimeapi.Container{Id: id, PodSandboxId: "s" + id, Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	}
	rawruntime.Serve(t, runtime, listener)
	gate, said, code := make(chan struct{}), newTranscript(), make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		code <- cli.Execute(ctx, cli.Process{Args: []string{"run", "-v", "debug", "--log-format=json", "-r", path}, Out: io.Discard, Err: gated{said, gate}})
	}()
	kitprocess.Eventually(t, "lists", func(context.Context) error {
		if n := runtime.Whole.Load(); n < 4 { // one of them is for the sizes of lists
			return fmt.Errorf("%d lists", n)
		}
		return nil
	})
	close(gate)
	kitprocess.Eventually(t, "lines", func(context.Context) error {
		if n := strings.Count(said.String(), "\n"); n < 1024 {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
	stop()
	if got, want := <-code, regexp.MustCompile(`(?m)^{"time":"[^"]*","level":"INFO","msg":"nobody read stderr: [1-9]\d* lines were dropped"}\n`); got != cli.ExitOK || !want.MatchString(said.String()) {
		t.Errorf("exit code %d, want a line %v after %.500s", got, want, said)
	}
}

// Lines that wait are bounded. The next line says how many were dropped.
func TestUnreadLinesAreBounded(t *testing.T) {
	for _, dropped := range []int{1, 4000} {
		synctest.Test(t, func(t *testing.T) { requireBound(t, 1024, dropped) })
	}
}

func requireBound(t *testing.T, bound, dropped int) {
	t.Helper()
	gate := make(chan struct{})
	var text bytes.Buffer
	stderr, end := cli.NewAsyncWriter(gated{&text, gate}, func(w io.Writer, dropped int64) { fmt.Fprintf(w, "%d dropped\n", dropped) })
	line := []byte("blocked\n")
	_, _ = stderr.Write(line)
	synctest.Wait()
	for n := range bound + dropped { // as slog does, each line is in the same buffer
		line = fmt.Appendf(line[:0], "line %d\n", n)
		_, _ = stderr.Write(line)
	}
	close(gate)
	synctest.Wait()
	fmt.Fprintln(stderr, "last")
	end()
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 1+bound+2 || lines[1] != "line 0" || lines[bound] != fmt.Sprint("line ", bound-1) {
		t.Fatalf("%d lines, the first %q, want %d in their order", len(lines), lines[:2], 1+bound+2)
	}
	if got, want := lines[bound+1:], fmt.Sprintf("[%d dropped last]", dropped); fmt.Sprint(got) != want {
		t.Errorf("the last lines are %v, want %v", got, want)
	}
}

// The end of the daemon waits for a second for a reader that sleeps.
func TestEndWaitsForTheReaderOfStderr(t *testing.T) {
	for reads, takes := range map[time.Duration]time.Duration{time.Second / 2: time.Second / 2, time.Hour: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			time.AfterFunc(reads, func() { close(gate) })
			var text bytes.Buffer
			stderr, end := cli.NewAsyncWriter(gated{&text, gate}, nil)
			var want strings.Builder
			for n := range 100 {
				fmt.Fprintln(&want, "line", n)
				fmt.Fprintln(stderr, "line", n)
			}
			began := time.Now()
			end()
			if took := time.Since(began); took != takes {
				t.Errorf("the end took %v, want %v", took, takes)
			}
			fmt.Fprintln(stderr, "too late") // by a goroutine that outlives the daemon
			<-gate
			synctest.Wait()
			if !strings.HasPrefix(text.String(), want.String()) {
				t.Errorf("stderr %q, want all lines", &text)
			}
		})
	}
}
