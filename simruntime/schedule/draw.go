package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// When says how often a call is spoiled.
type When string

// The times.
const (
	Once   When = "once"   // One call.
	Always When = "always" // Each call for a while.
	Random When = "random" // Each call with a probability, for a while.
)

// Any stands in a [Spec] for one that is drawn.
const Any = "*"

// Spec is a fault that is wanted: a call, a kind and how often. Each can be [Any].
type Spec struct {
	Call string
	Kind Kind
	When When
}

// ParseSpec reads a fault as in "ContainerStatus/hang/once" or "*/slow/random".
func ParseSpec(text string) (Spec, error) {
	words := strings.Split(text, "/")
	if len(words) != 3 {
		return Spec{}, fmt.Errorf("fault %q: want CALL/KIND/WHEN, such as ContainerStatus/hang/once or */error/random", text)
	}
	s := Spec{words[0], Kind(words[1]), When(words[2])}
	if s.Call != Any && Kinds(s.Call) == nil {
		return s, fmt.Errorf("fault %q: call %q: want one of *, %s", text, s.Call, strings.Join(Calls(), ", "))
	}
	if len(s.calls()) == 0 {
		return s, fmt.Errorf("fault %q: kind %q: %s knows *, %v", text, s.Kind, s.Call, Kinds(s.Call))
	}
	if s.When != Any && !slices.Contains([]When{Once, Always, Random}, s.When) {
		return s, fmt.Errorf("fault %q: %q: want once, always, random or *", text, s.When)
	}
	return s, nil
}

// calls are those that have the kind.
func (s Spec) calls() []string {
	return slices.DeleteFunc(Calls(), func(call string) bool {
		return s.Call != Any && call != s.Call || s.Kind == Any && slices.Contains(methods, call) && s.Call == Any ||
			s.Kind != Any && !slices.Contains(Kinds(call), s.Kind)
	})
}

// Defaults of [Options].
const (
	DefaultPods     = 20
	DefaultRate     = 2.0 // changes/s
	DefaultDuration = time.Minute
)

// Options say what [Draw] draws.
type Options struct {
	// Seed determines everything that is drawn. Zero is a seed like any other.
	Seed uint64
	// Pods is the number of pods at first, and to stay around. If zero,
	// DefaultPods; if negative, there are none at first.
	Pods int
	// Containers is the number in each pod at first. If zero, 2.
	Containers int
	// Rate is the number of changes per second. If zero, DefaultRate; if
	// negative, nothing changes.
	Rate float64
	// Duration is the time for which pods change and faults last. If zero,
	// DefaultDuration.
	Duration time.Duration
	// Latency is the name of a profile. If empty, "zero".
	Latency string
	// Faults are those to be drawn.
	Faults []Spec
}

func (o Options) complete() (Options, error) {
	switch {
	case o.Containers < 0:
		return o, fmt.Errorf("draw schedule: Options.Containers is negative: %d", o.Containers)
	case math.IsNaN(o.Rate) || math.IsInf(o.Rate, 0):
		return o, fmt.Errorf("draw schedule: Options.Rate is not a rate: %v", o.Rate)
	case o.Duration < 0:
		return o, fmt.Errorf("draw schedule: Options.Duration is negative: %v", o.Duration)
	}
	if o.Pods == 0 {
		o.Pods = DefaultPods
	}
	if o.Containers == 0 {
		o.Containers = 2
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	return o, nil
}

// Draw makes a schedule of believable churn and the faults wanted. The same
// options give the same schedule; one that has been written to a file stays the
// same for later versions of this package, too. It does not wait; ctx may end it
// early.
func Draw(ctx context.Context, o Options) (*Schedule, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Schedule{Seed: o.Seed, Latency: o.Latency}
	if err := s.drawSteps(ctx, o); err != nil {
		return nil, fmt.Errorf("draw schedule: %w", err)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x7363686564756c65))
	for _, spec := range o.Faults {
		s.Faults = append(s.Faults, drawFault(rng, spec, o.Duration))
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("draw schedule: %w", err)
	}
	return s, nil
}

// drawSteps has a runtime that nobody sees churn without pause, and notes what
// happens to it.
func (s *Schedule) drawSteps(ctx context.Context, o Options) error {
	rt, err := simruntime.New(simruntime.Options{Seed: o.Seed})
	if err != nil {
		return err
	}
	pods, err := rt.Populate(simruntime.Population{Pods: max(o.Pods, 0), Containers: o.Containers})
	if err != nil {
		return err
	}
	for _, p := range pods {
		s.Pods = append(s.Pods, Pod{Name: p.Namespace + "/" + p.Name, Containers: containerNames(p)})
	}
	steps := int(o.Duration.Seconds() * o.Rate)
	if steps <= 0 {
		return nil
	}
	var missing error
	err = rt.Churn(ctx, simruntime.ChurnOptions{
		Seed: o.Seed, Rate: o.Rate, Pods: max(o.Pods, 0), Actions: steps, Instant: true,
		Observe: func(a simruntime.Action) {
			at := time.Duration(float64(len(s.Steps)+1) / o.Rate * float64(time.Second)).Round(time.Millisecond)
			step, err := newStep(rt, a, at)
			missing = errors.Join(missing, err)
			s.Steps = append(s.Steps, step)
		},
	})
	return errors.Join(err, missing)
}

func newStep(rt *simruntime.Runtime, a simruntime.Action, at time.Duration) (Step, error) {
	step := Step{At: Time(at), Do: a.Kind, Pod: a.Namespace + "/" + a.Name}
	pod, _ := rt.Pod(a.PodUID)
	if a.Kind == simruntime.ActionAdd {
		step.Containers = containerNames(pod)
	}
	if a.ContainerID == "" {
		return step, nil
	}
	i := slices.IndexFunc(pod.Containers, func(c simruntime.Container) bool { return c.ID == a.ContainerID })
	if i < 0 {
		return step, fmt.Errorf("container %s is not there after its %s", a.ContainerID, a.Kind)
	}
	c := pod.Containers[i]
	step.Container = c.Name
	if a.Kind != simruntime.ActionRestart {
		step.ExitCode, step.Reason = c.ExitCode, c.Reason
	}
	return step, nil
}

// containerNames returns the names in the order of creation.
func containerNames(p simruntime.Pod) []string {
	var names []string
	for _, c := range slices.Backward(p.Containers) {
		names = append(names, c.Name)
	}
	return names
}

// drawFault draws what a spec leaves open.
func drawFault(rng *rand.Rand, spec Spec, duration time.Duration) Fault {
	calls := spec.calls()
	f := Fault{Call: calls[rng.IntN(len(calls))], Kind: spec.Kind}
	if kinds := Kinds(f.Call); f.Kind == Any {
		f.Kind = kinds[rng.IntN(len(kinds))]
	}
	when := spec.When
	if when == Any {
		when = []When{Once, Always, Random}[rng.IntN(3)]
	}
	part := func(least, most float64) Time {
		share := least + (most-least)*rng.Float64()
		return Time(time.Duration(share * float64(duration)).Round(time.Millisecond))
	}
	f.From = part(0, 0.5)
	f.Until = f.From + max(part(0.1, 0.4), Time(time.Millisecond))
	switch when {
	case Once:
		f.From, f.Times, f.After = 0, 1, rng.IntN(8)
	case Random:
		f.Probability, f.Seed = math.Round(100*(0.1+0.6*rng.Float64()))/100, rng.Uint64()>>32+1
	}
	switch f.Kind {
	case Error:
		f.Code = []string{"Unavailable", "Internal", "Unknown", "DeadlineExceeded", "ResourceExhausted", "Unimplemented"}[rng.IntN(6)]
	case Slow:
		f.Delay = Time(time.Duration(10+rng.IntN(1990)) * time.Millisecond)
	case Truncate:
		f.Messages = 1 + rng.IntN(3)
	case Malform:
		ways := malforms[f.Call]
		f.Malform = ways[rng.IntN(len(ways))]
	}
	return f
}
