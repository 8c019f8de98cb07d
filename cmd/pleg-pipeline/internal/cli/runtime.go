package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// howFound is part of the help of every command that talks to a runtime.
const howFound = `The runtime is found as crictl finds it; the first of these counts:
  1. --runtime-endpoint
  2. the environment variable CONTAINER_RUNTIME_ENDPOINT
  3. runtime-endpoint in the file named by --config or by the environment
     variable CRI_CONFIG_FILE, otherwise in /etc/crictl.yaml
  4. the well-known sockets of containerd, CRI-O, cri-dockerd and k3s`

// howReplayed follows howFound for a command that takes a recording too.
const howReplayed = `
replay:FILE in the place of a socket is the recording in FILE, see
"pleg-pipeline record --help".`

// runtimeFlags say which runtime a command talks to.
type runtimeFlags struct {
	endpoint, config string
	replaySpeed      float64
	simulation       simulation
}

func (f *runtimeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.endpoint, "runtime-endpoint", "r", "", "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock,\nor replay:FILE")
	flags.Float64Var(&f.replaySpeed, "replay-speed", 1, "play a recording that many `TIMES` as fast as it was made")
	flags.StringVar(&f.config, "config", "", "crictl configuration `FILE` that may name the endpoint")
	flags.IntVar(&f.simulation.pods, "simulate", 0, "simulate a runtime with this number of `PODS` in place of a real one")
	flags.Lookup("simulate").NoOptDefVal = strconv.Itoa(defaultPods)
	f.simulation.addFlags(cmd)
}

// noArgs explains the error in "--simulate 50", which cobra reads as a flag without
// its optional value, and an argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && cmd.Flags().Changed("simulate") {
		if _, err := strconv.Atoi(args[0]); err == nil {
			return fmt.Errorf("the number of pods needs an equals sign: --simulate=%s", args[0])
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(args, " "))
	}
	return nil
}

// given returns the flag that names a runtime, or "" if none does.
func (f *runtimeFlags) given(flags *pflag.FlagSet) string {
	for _, name := range []string{"runtime-endpoint", "config", "simulate"} {
		if flags.Changed(name) {
			return "--" + name
		}
	}
	return ""
}

func (f *runtimeFlags) validate(flags *pflag.FlagSet) error {
	// An empty value, such as that of a variable that is not set, is an error.
	if f.endpoint == "" && flags.Changed("runtime-endpoint") {
		return errors.New("--runtime-endpoint must not be empty")
	}
	if err := f.validateReplay(flags); err != nil {
		return err
	}
	if !flags.Changed("simulate") {
		for _, flag := range simulationFlags() {
			if flags.Changed(flag) {
				return fmt.Errorf("--%s needs --simulate", flag)
			}
		}
		return nil
	}
	if f.endpoint != "" || f.config != "" {
		return errors.New("--simulate cannot be combined with --runtime-endpoint or --config")
	}
	if f.simulation.pods <= 0 {
		return fmt.Errorf("--simulate must be at least 1, got %d", f.simulation.pods)
	}
	return f.simulation.validate()
}

// use calls with for the simulated runtime, the recording, or the runtime that it
// finds.
func (f *runtimeFlags) use(ctx context.Context, p Process, out console, with func(context.Context, endpoint.Endpoint) error) error {
	if f.simulation.pods > 0 {
		out.say(ctx, "the runtime is simulated: %v", &f.simulation)
		return f.simulation.around(ctx, out.log, func(ctx context.Context, address string) error {
			return with(ctx, endpoint.Endpoint{Address: address, Source: "--simulate"})
		})
	}
	found, err := f.resolve(ctx, p)
	if errors.Is(err, endpoint.ErrNone) {
		return fmt.Errorf("%w\nname one with --runtime-endpoint, or try the program without a runtime: %s run --simulate", err, Name)
	}
	if err != nil {
		return err
	}
	if file, ok := found.Recording(); ok {
		return f.replay(ctx, out, file, with)
	}
	return with(ctx, found)
}

func (f *runtimeFlags) resolve(ctx context.Context, p Process) (endpoint.Endpoint, error) {
	return endpoint.Resolver{
		Flag:          f.endpoint,
		Config:        f.config,
		Getenv:        p.Getenv,
		DefaultConfig: endpoint.DefaultConfig,
		WellKnown:     endpoint.WellKnown(),
	}.Resolve(ctx)
}

// connect returns a client of a runtime that has answered.
func connect(ctx context.Context, out console, from endpoint.Endpoint, o cri.Options) (*cri.Client, error) {
	client, err := cri.New(from.Address, o)
	if err != nil {
		return nil, fmt.Errorf("%w (from %s)", err, from.Source)
	}
	version, err := client.Check(ctx)
	if err != nil {
		return nil, errors.Join(unusable(err, from), client.Close())
	}
	out.say(ctx, "connected to %s %s at %s", version.RuntimeName, version.RuntimeVersion, from.Address)
	return client, nil
}

// unusable returns the error of a runtime that failed its check: where its address
// comes from, and what to do. The error of the call is long and technical and gets a
// line of its own.
func unusable(err error, from endpoint.Endpoint) error {
	why, detail := err.Error(), ""
	if failed, ok := errors.AsType[*cri.ConnectError](err); ok {
		why = fmt.Sprintf("check runtime at %s: %s", failed.Endpoint, failed.Reason)
		detail = fmt.Sprintf("\n  cause: %v", failed.Err)
	}
	return fmt.Errorf("%s%s\n  the address is from %s; name another one with --runtime-endpoint,\n  or try the program without a runtime: %s run --simulate",
		why, detail, from.Source, Name)
}
