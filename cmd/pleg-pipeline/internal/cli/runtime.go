package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// howFound is part of the help of every command that talks to a runtime.
const howFound = `The runtime is found as crictl finds it; the first of these counts:
  1. --runtime-endpoint
  2. the environment variable CONTAINER_RUNTIME_ENDPOINT
  3. runtime-endpoint in the file named by --config or by the environment
     variable CRI_CONFIG_FILE, otherwise in /etc/crictl.yaml
  4. the first of the well-known sockets of containerd, CRI-O, cri-dockerd and k3s
     whose runtime answers`

// howReplayed follows howFound for a command that accepts a recording too.
const howReplayed = `
replay:FILE in the place of a socket is the recording in FILE, see
"pleg-pipeline record --help".`

type runtimeFlags struct {
	endpoint, config string
	simulation       simulation
	// wait means that the runtime may be missing or not answer yet.
	wait bool
	// once means that the command ends by itself, so that the end of a recording does not end it.
	once bool
}

func (f *runtimeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.endpoint, "runtime-endpoint", "r", "", "`ENDPOINT` of the runtime, such as unix:///run/containerd/containerd.sock,\nor replay:FILE")
	flags.StringVar(&f.config, "config", "", "crictl configuration `FILE` that may name the endpoint")
}

// addSimulation adds --simulate. Other commands take the socket of "pleg-pipeline simulate".
func (f *runtimeFlags) addSimulation(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.simulation.pods, "simulate", 0, "simulate a runtime with this number of `PODS` in place of a real one")
	flags.Lookup("simulate").NoOptDefVal = strconv.Itoa(defaultPods)
	f.simulation.seed, f.simulation.churnRate = defaultSeed, defaultChurnRate
	if forTests != "" {
		f.simulation.addFlags(cmd)
		tuning(cmd, "seed", "churn-rate")
	}
}

// given returns the flag that names a runtime, or "" if none does.
func (f *runtimeFlags) given(flags *pflag.FlagSet) string {
	for _, name := range []string{"runtime-endpoint", "config"} {
		if flags.Changed(name) {
			return "--" + name
		}
	}
	return ""
}

func (f *runtimeFlags) validate(flags *pflag.FlagSet) error {
	if err := cmp.Or(notEmpty(flags, "runtime-endpoint"), f.validateReplay()); err != nil {
		return err
	}
	if !flags.Changed("simulate") {
		return nil
	}
	if f.endpoint != "" || f.config != "" {
		return errors.New("--simulate cannot be combined with --runtime-endpoint or --config")
	}
	return cmp.Or(between(flags, "simulate", 1, maxPods), f.simulation.validate())
}

// use calls fn with the simulated runtime, the recording, or the runtime that it
// finds.
func (f *runtimeFlags) use(ctx context.Context, p Process, out console, fn func(context.Context, endpoint.Endpoint) error) error {
	if f.simulation.pods > 0 {
		out.say(ctx, "the runtime is simulated: %v", &f.simulation)
		return f.simulation.around(ctx, out.log, func(ctx context.Context, address string) error {
			return fn(ctx, endpoint.Endpoint{Address: address, Source: "--simulate"})
		})
	}
	found, err := f.resolve(ctx, p)
	if f.wait && errors.Is(err, endpoint.ErrNone) {
		out.say(ctx, "waiting for a runtime: %v", err)
		found, err = f.awaitRuntime(ctx, p)
	}
	if errors.Is(err, endpoint.ErrNone) {
		return fmt.Errorf("%w\nname one with --runtime-endpoint, or try the program without a runtime: %s run --simulate", err, Name)
	}
	if err != nil {
		return interrupted(ctx, out, err)
	}
	if file, ok := found.Recording(); ok {
		return f.replay(ctx, out, file, fn)
	}
	return fn(ctx, found)
}

const awaitPeriod = time.Second

func (f *runtimeFlags) awaitRuntime(ctx context.Context, p Process) (endpoint.Endpoint, error) {
	for {
		if err := backoff.Wait(ctx, awaitPeriod); err != nil {
			return endpoint.Endpoint{}, err
		}
		if found, err := f.resolve(ctx, p); !errors.Is(err, endpoint.ErrNone) {
			return found, err
		}
	}
}

func (f *runtimeFlags) resolve(ctx context.Context, p Process) (endpoint.Endpoint, error) {
	return endpoint.Resolver{
		Flag:          f.endpoint,
		Config:        f.config,
		Getenv:        p.Getenv,
		DefaultConfig: p.Config,
		WellKnown:     p.Sockets,
	}.Resolve(ctx)
}

// connect returns a client of a runtime that has answered.
func connect(ctx context.Context, out console, from endpoint.Endpoint, o cri.Options) (*cri.Client, error) {
	client, err := newRuntimeClient(from, o)
	if err != nil {
		return nil, err
	}
	why, detail := check(ctx, out, client, from)
	if why == "" {
		return client, nil
	}
	// The error of the call is long and technical and gets a line of its own.
	err = fmt.Errorf("%s%s\n  the address is from %s; name another one with --runtime-endpoint,\n  or try the program without a runtime: %s run --simulate",
		why, detail, from.Source, Name)
	return nil, errors.Join(err, client.Close())
}

func newRuntimeClient(from endpoint.Endpoint, o cri.Options) (*cri.Client, error) {
	client, err := cri.New(from.Address, o)
	if err != nil {
		return nil, fmt.Errorf("%w (from %s)", err, from.Source)
	}
	return client, nil
}

// check asks a runtime for its version and prints it, or returns why that failed, with the error of the
// call as another line, if there is one.
func check(ctx context.Context, out console, client *cri.Client, from endpoint.Endpoint) (why, detail string) {
	version, err := client.Check(ctx)
	if err == nil {
		out.say(ctx, "connected to %s %s at %s", view.Printable(version.RuntimeName), view.Printable(version.RuntimeVersion), from.Address)
		return "", ""
	}
	failed, ok := errors.AsType[*cri.ConnectError](err)
	if !ok {
		return err.Error(), ""
	}
	return fmt.Sprintf("check runtime at %s: %s", failed.Endpoint, failed.Reason), fmt.Sprintf("\n  cause: %v", failed.Err)
}

// interrupted returns err. If the end of ctx caused it, it prints that and returns nil.
func interrupted(ctx context.Context, out console, err error) error {
	if ctx.Err() == nil {
		return err
	}
	out.say(ctx, "%v before there was an answer", context.Cause(ctx))
	return nil
}
