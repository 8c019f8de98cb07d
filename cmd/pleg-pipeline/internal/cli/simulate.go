package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const simulateLong = `Serve a simulated CRI runtime on a unix socket until SIGINT or SIGTERM.

Any CRI client can use it: this program, crictl, a test. Its pods crash, restart,
come and go as on a busy node, but no processes run. Clients can only read.

--fault makes a call fail (KIND is error), hang, take 2 s (slow) or answer without
metadata (malform). CALL is Version, ListPodSandbox, ListContainers,
PodSandboxStatus, ContainerStatus or GetContainerEvents. --seed determines the pods
and their changes: the same flags repeat a run, which begins with the first call of
a client.`

const simulateExample = `  # 110 pods, as many as a node has by default, that change 20 times a second
  pleg-pipeline simulate --socket /tmp/cri.sock --pods 110 --churn-rate 20

  # in another terminal
  pleg-pipeline run -r unix:///tmp/cri.sock
  crictl -r unix:///tmp/cri.sock pods

  # a container whose status hangs; "doctor" names it
  pleg-pipeline simulate --socket /tmp/cri.sock \
    --fault ContainerStatus/hang --fault-pod shop/web-0`

type simulateCommand struct {
	simulation

	process Process
	socket  string
	faults  faultFlags
	log     logFlags
}

func newSimulate(p Process) *cobra.Command {
	return newCommand(&simulateCommand{process: p}, &cobra.Command{
		Use:     "simulate --socket PATH",
		Short:   "Serve a simulated container runtime for other programs",
		Long:    simulateLong,
		Example: simulateExample,
		Args:    cobra.NoArgs,
	})
}

func (c *simulateCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.socket, "socket", "", "`PATH` of the socket to create; replaces a socket that no process serves.\nRequired")
	flags.IntVar(&c.pods, "pods", defaultPods, "`NUMBER` of pods, of two containers each")
	c.simulation.addFlags(cmd)
	c.faults.addFlags(cmd)
	c.log.add(cmd, "info", "debug", "warn", "error")
}

func (c *simulateCommand) validate(flags *pflag.FlagSet) error {
	if c.socket == "" {
		return errors.New("--socket is required: the path of the socket to create, such as --socket /tmp/cri.sock")
	}
	return cmp.Or(between(flags, "pods", 0, maxPods), c.faults.validate(), c.simulation.validate())
}

func (c *simulateCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	socket, err := filepath.Abs(c.socket)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	runtime := c.start(out.log)
	keep := c.faults.inject(runtime)
	out.say(ctx, "serving a simulated runtime (%v) on unix://%s until interrupted", &c.simulation, socket)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.ListenAndServe(ctx, socket) })
	group.Go(func() error { return c.churnAfterCall(ctx, runtime, keep...) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

const (
	defaultPods      = 20
	maxPods          = 100_000 // far more than run on a node
	defaultSeed      = 1
	defaultChurnRate = 2.0
	// containersPerPod makes a pod of the simulation look like a usual pod: an application and its
	// sidecar.
	containersPerPod = 2
)

type simulation struct {
	pods      int
	seed      uint64
	churnRate float64
}

func (s *simulation) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Uint64Var(&s.seed, "seed", defaultSeed, "`NUMBER` that determines names, ids and what happens to the simulated pods")
	flags.Float64Var(&s.churnRate, "churn-rate", defaultChurnRate,
		"`CHANGES` per second to the simulated pods: crashes, restarts, pods that\ncome and go; 0 for none")
}

func (s *simulation) validate() error {
	if s.churnRate < 0 || math.IsNaN(s.churnRate) || math.IsInf(s.churnRate, 0) {
		return fmt.Errorf("--churn-rate must be a number of changes per second, 0 or more, got %v", s.churnRate)
	}
	return nil
}

func (s *simulation) String() string {
	return fmt.Sprintf("%d pods, %g changes/s, seed %d", s.pods, s.churnRate, s.seed)
}

func (s *simulation) start(log *slog.Logger) *simruntime.Runtime {
	runtime := simruntime.New(simruntime.Options{Seed: s.seed, Logger: log})
	runtime.Populate(simruntime.Population{Pods: s.pods, Containers: containersPerPod})
	return runtime
}

// churn changes the pods of the runtime, except the pods to keep, until ctx ends.
func (s *simulation) churn(ctx context.Context, runtime *simruntime.Runtime, keep ...pleg.PodUID) error {
	if s.churnRate == 0 {
		return nil
	}
	return runtime.Churn(ctx, simruntime.ChurnOptions{Seed: s.seed, Rate: s.churnRate, Pods: s.pods, Keep: keep})
}

// churnAfterCall is churn from the first call of a client on: the same flags repeat a run.
func (s *simulation) churnAfterCall(ctx context.Context, runtime *simruntime.Runtime, keep ...pleg.PodUID) error {
	if err := runtime.SleepAfterCall(ctx, 0); err != nil {
		return err
	}
	return s.churn(ctx, runtime, keep...)
}

// around calls use with the endpoint of a simulated runtime, which serves on a
// private socket until use has returned.
func (s *simulation) around(ctx context.Context, log *slog.Logger, use func(ctx context.Context, endpoint string) error) error {
	if !log.Enabled(ctx, slog.LevelDebug) {
		log = nil // the start and stop of the runtime are of no interest
	}
	runtime := s.start(log)
	return servePrivately(ctx, use, runtime.Serve, func(ctx context.Context, _ net.Listener) error {
		return s.churn(ctx, runtime)
	})
}
