package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// scheduleFlags have a simulation follow a schedule.
type scheduleFlags struct {
	faults         []string
	duration       time.Duration
	record, replay string
}

func (f *scheduleFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.faults, "faults", nil,
		"`CALLS` to be spoiled, as CALL/KIND/WHEN,..., such as\nContainerStatus/hang/once; * stands for one that is drawn")
	flags.DurationVar(&f.duration, "duration", schedule.DefaultDuration, "with --faults or --record-schedule, `TIME` for which pods change and faults\nlast; without, pods change for ever")
	flags.StringVar(&f.record, "record-schedule", "", "write what is to happen to `FILE`; without --socket do only that")
	flags.StringVar(&f.replay, "replay", "", "have happen what `FILE` says, from the first call of a client on")
}

// replacedFlags are the flags whose values come from the file that is replayed.
func replacedFlags() []string {
	return []string{"seed", "pods", "churn-rate", "latency", "faults", "duration", "record-schedule"}
}

func (f *scheduleFlags) validate(flags *pflag.FlagSet) error {
	for _, name := range []string{"replay", "record-schedule"} {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s must not be empty", name)
		}
	}
	for _, name := range replacedFlags() {
		if f.replay != "" && flags.Changed(name) {
			return fmt.Errorf("--%s cannot be combined with --replay: the file says it", name)
		}
	}
	if f.duration <= 0 {
		return fmt.Errorf("--duration must be longer than 0, got %v", f.duration)
	}
	if flags.Changed("duration") && !f.wanted() {
		return errors.New("--duration needs --faults or --record-schedule")
	}
	_, err := f.specs()
	return err
}

// wanted reports whether there is a schedule.
func (f *scheduleFlags) wanted() bool {
	return f.replay != "" || f.record != "" || len(f.faults) > 0
}

func (f *scheduleFlags) specs() ([]schedule.Spec, error) {
	specs := make([]schedule.Spec, len(f.faults))
	for i, text := range f.faults {
		var err error
		if specs[i], err = schedule.ParseSpec(text); err != nil {
			return nil, fmt.Errorf("--faults: %w", err)
		}
	}
	return specs, nil
}

// schedule reads the schedule, or draws it and writes it if that is wanted.
func (c *simulateCommand) schedule(ctx context.Context) (*schedule.Schedule, error) {
	if c.schedules.replay != "" {
		file, err := os.Open(c.schedules.replay)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		s, err := schedule.Decode(file)
		if err != nil {
			return nil, fmt.Errorf("replay %s: %w", c.schedules.replay, err)
		}
		return s, nil
	}
	specs, err := c.schedules.specs()
	if err != nil {
		return nil, err
	}
	pods, rate := c.pods, c.churnRate
	if pods == 0 {
		pods = -1
	}
	if rate == 0 {
		rate = -1
	}
	s, err := schedule.Draw(ctx, schedule.Options{
		Seed: c.seed, Pods: pods, Containers: containersPerPod, Rate: rate,
		Duration: c.schedules.duration, Latency: c.latency, Faults: specs,
	})
	if err != nil || c.schedules.record == "" {
		return s, err
	}
	return s, writeSchedule(s, c.schedules.record)
}

func writeSchedule(s *schedule.Schedule, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("record schedule: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return s.Encode(file)
}

// play plays the schedule and goes on until ctx ends.
func play(ctx context.Context, out console, s *schedule.Schedule, rt *simruntime.Runtime) error {
	played, err := s.Play(ctx, rt, schedule.PlayOptions{WaitForCall: true, Observe: func(step schedule.Step) {
		out.log.DebugContext(ctx, "step", "at", step.At.String(), "do", string(step.Do), "pod", step.Pod, "container", step.Container)
	}})
	if err != nil {
		return err
	}
	out.say(ctx, "the schedule has been played: %d steps, %s", played.Steps, spoiled(rt.Stats()))
	if played.PassedOver > 0 {
		out.say(ctx, "%d steps or faults were passed over: the pods or containers were not there, or in another state", played.PassedOver)
	}
	if played.Panics > 0 {
		out.say(ctx, "%d faults are panics of the client, which only its tests can play", played.Panics)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// spoiled tells how many calls faults have hit.
func spoiled(stats simruntime.Stats) string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(stats.RPCs)) {
		if r := stats.RPCs[rpc]; r.Spoiled > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", r.Spoiled, r.Calls, rpc))
		}
	}
	if len(parts) == 0 {
		return "no call was spoiled"
	}
	return "spoiled " + strings.Join(parts, ", ")
}
