package cli_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestSimulateRepeatsForSeed requires that containers that die in a simulation
// die in another simulation of that seed too. A busy machine does not see all of them.
func TestSimulateRepeatsForSeed(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--seed", "3", "--pods", "4", "--churn-rate", "20")
	simulated.stderr.await(t, "simulated runtime serves")
	r, w := io.Pipe()
	watched := start(t, w, "run", "-r", "unix://"+socket, "--events", "require", "-o", "json")
	out, expected := bufio.NewReader(r), diedFirst(t, 1000)
	for range 10 {
		line := readUntil(t, out, func(line string) bool {
			return strings.Contains(line, `"type":"ContainerDied"`) && !strings.Contains(line, `"sandbox":true`)
		})
		if id := string(decode(t, line)[0].ContainerID); !slices.Contains(expected, id) {
			t.Errorf("container %s died, but not in another simulation with this seed", id)
		}
	}
	_ = r.Close()
	watched.ends(t, cli.ExitOK)
	simulated.stopAndWait(t)
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s is still there", socket)
	}
}

// diedFirst returns the first containers that exit in a simulation of TestSimulateRepeatsForSeed.
func diedFirst(t *testing.T, n int) []string {
	t.Helper()
	var died []string
	synctest.Test(t, func(t *testing.T) {
		rt, err := simruntime.New(simruntime.Options{Seed: 3})
		kit.Must(t, err)
		if _, err := rt.Populate(simruntime.Population{Pods: 4, Containers: 2}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_ = rt.Churn(ctx, simruntime.ChurnOptions{Seed: 3, Rate: 20, Pods: 4, Observe: func(string) {
			for _, p := range rt.Pods() {
				for _, c := range p.Containers {
					if c.State == simruntime.Exited && !slices.Contains(died, c.ID) {
						died = append(died, c.ID)
					}
				}
			}
			if len(died) >= n {
				cancel()
			}
		}})
	})
	return died
}

// TestRunStopsBeforeRuntimeAnswers is Ctrl-C while the check of a runtime, which accepts
// and never answers, is still running.
func TestRunStopsBeforeRuntimeAnswers(t *testing.T) {
	t.Parallel()
	l, path := listen(t)
	s := start(t, newTranscript(), "run", "-r", path)
	conn, err := l.Accept()
	kit.Must(t, err)
	defer conn.Close()
	s.stop()
	s.ends(t, cli.ExitOK)
	if want := "before there was an answer"; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", s.stderr, want)
	}
}
