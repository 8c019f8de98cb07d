package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

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
}

func (s *simulation) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.seed, "seed", 1, "`NUMBER` that determines names, ids and what happens to the simulated pods")
	flags.Float64Var(&s.churnRate, "churn-rate", defaultChurnRate,
		"`CHANGES` per second to the simulated pods: crashes, restarts, pods that\ncome and go; 0 for none")
	enumFlag(cmd, &s.latency, "latency", "", "how long calls of the simulated runtime take: none, as on a busy node\n(3 to 30 ms), or the same with a heavy tail",
		simruntime.ProfileZero, simruntime.ProfileNode, simruntime.ProfileTail)
}

// simulationFlags are the flags that mean nothing without a simulation.
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
	runtime, err := simruntime.New(simruntime.Options{Seed: s.seed, Profile: profile, Logger: log})
	if err != nil {
		return nil, err
	}
	_, err = runtime.Populate(simruntime.Population{Pods: s.pods, Containers: containersPerPod})
	return runtime, err
}

// churn changes the pods of the runtime until ctx ends.
func (s *simulation) churn(ctx context.Context, runtime *simruntime.Runtime) error {
	if s.churnRate == 0 {
		return nil
	}
	return runtime.Churn(ctx, simruntime.ChurnOptions{Seed: s.seed, Rate: s.churnRate, Pods: s.pods})
}

// around calls use with the endpoint of a simulated runtime that lives on a
// private socket until use has returned.
func (s *simulation) around(ctx context.Context, log *slog.Logger, use func(ctx context.Context, endpoint string) error) (err error) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		log = nil // its start and stop are this program's own
	}
	dir, err := os.MkdirTemp("", Name+"-")
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	runtime, err := s.start(log)
	if err != nil {
		return errors.Join(fmt.Errorf("simulate a runtime: %w", err), listener.Close())
	}
	// The simulation outlives ctx until use has stopped, so that it goes down
	// last, as a runtime does. If it breaks, use is ended with its error.
	simulated, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	var group errgroup.Group
	for _, part := range []func() error{
		func() error { return runtime.Serve(simulated, listener) },
		func() error { return s.churn(simulated, runtime) },
	} {
		group.Go(func() error {
			err := part()
			if err != nil {
				broken(fmt.Errorf("simulate a runtime: %w", err))
			}
			return err
		})
	}
	err = use(ctx, "unix://"+socket)
	stop()
	_ = group.Wait() // use has been told
	return err
}
