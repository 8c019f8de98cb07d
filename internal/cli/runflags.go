package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/monitor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/printer"
)

// runCommand is the command run with its flags.
type runCommand struct {
	process Process

	endpoint, config string
	simulation       simulation

	relistPeriod, relistThreshold time.Duration
	listTimeout, inspectTimeout   time.Duration
	inspectors, maxStatusCalls    int

	output    string
	noHeaders bool

	listen        string
	kubeletNames  bool
	log           logFlags
	listenAddress string // listen with its host, set by validate; empty if off
}

func (c *runCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&c.endpoint, "runtime-endpoint", "r", "", "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock")
	flags.StringVar(&c.config, "config", "", "crictl configuration `FILE` that may name the endpoint")

	flags.IntVar(&c.simulation.pods, "simulate", 0, "simulate a runtime with this number of `PODS` in place of a real one")
	flags.Lookup("simulate").NoOptDefVal = strconv.Itoa(defaultPods)
	c.simulation.addFlags(cmd)

	formats := printer.Formats()
	enumFlag(cmd, &c.output, "output", "o", "how to print events: columns, or one JSON object a line", string(formats[0]), string(formats[1]))
	flags.BoolVar(&c.noHeaders, "no-headers", false, "leave out the line of column names")

	flags.DurationVar(&c.relistPeriod, "relist-period", pipeline.DefaultRelistPeriod, "`TIME` from the end of one list of all pods to the next")
	flags.DurationVar(&c.relistThreshold, "relist-threshold", pipeline.DefaultRelistThreshold, "`AGE` of the last successful list at which /readyz fails")
	flags.DurationVar(&c.listTimeout, "list-timeout", pipeline.DefaultListTimeout, "`TIME` after which a list is given up")
	flags.IntVar(&c.inspectors, "inspectors", pipeline.DefaultInspectors, "greatest `NUMBER` of pods inspected at once")
	flags.DurationVar(&c.inspectTimeout, "inspect-timeout", pipeline.DefaultInspectTimeout, "`TIME` after which the inspection of a pod is given up, to be\ntried again")
	flags.IntVar(&c.maxStatusCalls, "max-status-calls", cri.DefaultMaxStatusCalls, "greatest `NUMBER` of status calls to the runtime at once, for all pods")

	flags.StringVar(&c.listen, "listen", "", "serve /metrics, /livez and /readyz on this `ADDRESS`, such as :9090; without\na host only this machine can connect")
	flags.BoolVar(&c.kubeletNames, "kubelet-metric-names", false, "give metrics that the kubelet has too its names (kubelet_pleg_...)")
	c.log.add(cmd)
}

// validate checks what the flags' types do not, and completes the address.
func (c *runCommand) validate(flags *pflag.FlagSet) error {
	for _, check := range []func(*pflag.FlagSet) error{c.checkEndpoint, c.checkSimulation, c.checkPositive, c.checkListen} {
		if err := check(flags); err != nil {
			return err
		}
	}
	if c.relistThreshold <= c.relistPeriod {
		return fmt.Errorf("--relist-threshold (%v) must be longer than --relist-period (%v)", c.relistThreshold, c.relistPeriod)
	}
	return nil
}

func (c *runCommand) checkPositive(*pflag.FlagSet) error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"relist-period", c.relistPeriod},
		{"relist-threshold", c.relistThreshold},
		{"list-timeout", c.listTimeout},
		{"inspect-timeout", c.inspectTimeout},
	} {
		if d.value <= 0 {
			return fmt.Errorf("--%s must be longer than 0, got %v", d.flag, d.value)
		}
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"inspectors", c.inspectors},
		{"max-status-calls", c.maxStatusCalls},
	} {
		if n.value <= 0 {
			return fmt.Errorf("--%s must be at least 1, got %d", n.flag, n.value)
		}
	}
	return nil
}

func (c *runCommand) checkSimulation(flags *pflag.FlagSet) error {
	if !flags.Changed("simulate") {
		for _, flag := range simulationFlags() {
			if flags.Changed(flag) {
				return fmt.Errorf("--%s needs --simulate", flag)
			}
		}
		return nil
	}
	if c.endpoint != "" || c.config != "" {
		return errors.New("--simulate cannot be combined with --runtime-endpoint or --config")
	}
	if c.simulation.pods <= 0 {
		return fmt.Errorf("--simulate must be at least 1, got %d", c.simulation.pods)
	}
	return c.simulation.validate()
}

// checkEndpoint tells an empty value, as of a variable that is not set, from a
// flag that is not given.
func (c *runCommand) checkEndpoint(flags *pflag.FlagSet) error {
	if c.endpoint == "" && flags.Changed("runtime-endpoint") {
		return errors.New("--runtime-endpoint must not be empty")
	}
	return nil
}

func (c *runCommand) checkListen(flags *pflag.FlagSet) error {
	if !flags.Changed("listen") {
		return nil
	}
	var err error
	if c.listenAddress, err = monitor.ParseAddress(c.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}
