package cli

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const (
	defaultPods      = 20
	defaultChurnRate = 2.0
	// containersPerPod makes a pod of the simulation look like a common one: an
	// application and its sidecar.
	containersPerPod = 2
)

// simulation is a simulated runtime as the command line describes it.
type simulation struct {
	pods      int
	seed      uint64
	churnRate float64
	latency   string
	// streamBatch is the number of items in one message of a streamed list; 0 for
	// the default.
	streamBatch int
}

func (s *simulation) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.seed, "seed", 1, "`NUMBER` that determines names, ids and what happens to the simulated pods")
	flags.Float64Var(&s.churnRate, "churn-rate", defaultChurnRate,
		"`CHANGES` per second to the simulated pods: crashes, restarts, pods that\ncome and go; 0 for none")
	enumFlag(cmd, &s.latency, "latency", "", "how long calls of the simulated runtime take: none, as on a busy node\n(3 to 30 ms), or the same with a heavy tail",
		simruntime.ProfileZero, simruntime.ProfileNode, simruntime.ProfileTail)
}

// simulationFlags are the flags that need a simulation.
func simulationFlags() []string { return []string{"seed", "churn-rate", "latency"} }

func (s *simulation) validate() error {
	if s.churnRate < 0 || math.IsNaN(s.churnRate) || math.IsInf(s.churnRate, 0) {
		return fmt.Errorf("--churn-rate must be a number of changes per second, 0 or more, got %v", s.churnRate)
	}
	return nil
}

func (s *simulation) String() string {
	return fmt.Sprintf("%d pods, %g changes/s, seed %d", s.pods, s.churnRate, s.seed)
}

func (s *simulation) start(log *slog.Logger) (*simruntime.Runtime, error) {
	profile, err := simruntime.NewProfile(s.latency)
	if err != nil {
		return nil, err
	}
	runtime, err := simruntime.New(simruntime.Options{Seed: s.seed, Profile: profile, StreamBatch: s.streamBatch, Logger: log})
	if err != nil {
		return nil, err
	}
	_, err = runtime.Populate(simruntime.Population{Pods: s.pods, Containers: containersPerPod})
	return runtime, err
}

// churn changes the pods of the runtime until ctx ends, or a number of times if
// changes is not 0.
func (s *simulation) churn(ctx context.Context, runtime *simruntime.Runtime, changes int) error {
	if s.churnRate == 0 {
		return nil
	}
	return runtime.Churn(ctx, simruntime.ChurnOptions{Seed: s.seed, Rate: s.churnRate, Pods: s.pods, Actions: changes})
}

// around calls use with the endpoint of a simulated runtime, which serves on a
// private socket until use has returned.
func (s *simulation) around(ctx context.Context, log *slog.Logger, use func(ctx context.Context, endpoint string) error) error {
	if !log.Enabled(ctx, slog.LevelDebug) {
		log = nil // the start and stop of the runtime are of no interest
	}
	runtime, err := s.start(log)
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	return servePrivately(ctx, use, runtime.Serve, func(ctx context.Context, _ net.Listener) error {
		return s.churn(ctx, runtime, 0)
	})
}
