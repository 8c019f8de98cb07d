package simruntime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
)

// The kinds of faults that [DrawFaults] draws.
const (
	FaultError    = "error"    // The call fails with a code.
	FaultHang     = "hang"     // The call does not answer until the fault ends or the client cancels it.
	FaultSlow     = "slow"     // The call answers late.
	FaultTruncate = "truncate" // The stream breaks after some messages.
	FaultMalform  = "malform"  // The answer is malformed.
)

// How often a fault hits.
const (
	FaultOnce   = "once"   // One call.
	FaultAlways = "always" // Each call.
	FaultRandom = "random" // Each call with a probability.
)

// anyFault stands in a pattern for a call, a kind or a frequency that is drawn.
const anyFault = "*"

var malformNames = map[string]Malform{
	"nil-metadata": NilMetadata, "unknown-state": UnknownState, "nil-status": NilStatus,
	"orphan-containers": OrphanContainers, "duplicate-ids": DuplicateIDs, "wrong-id": WrongID,
}

// String returns the name of the way, such as "nil-status".
func (m Malform) String() string {
	for name, value := range malformNames {
		if value == m {
			return name
		}
	}
	return "none"
}

// malforms are the ways to malform the answer of a call.
var malforms = func() map[string][]Malform {
	sandboxes := []Malform{NilMetadata, UnknownState, DuplicateIDs, WrongID}
	containers := append(slices.Clip(sandboxes), OrphanContainers)
	status := []Malform{NilMetadata, UnknownState, NilStatus, WrongID}
	return map[string][]Malform{
		"ListPodSandbox": sandboxes, "StreamPodSandboxes": sandboxes,
		"ListContainers": containers, "StreamContainers": containers,
		"PodSandboxStatus": status, "ContainerStatus": status,
		rpcEvents: {NilMetadata, UnknownState, NilStatus, WrongID, DuplicateIDs},
	}
}()

// FaultCalls returns the RPCs that [DrawFaults] knows: those a pipeline calls.
func FaultCalls() []string {
	return append(slices.Sorted(maps.Keys(malforms)), "Version")
}

// FaultKinds returns the kinds of faults that a call can have, or nil if
// [FaultCalls] does not include the call.
func FaultKinds(call string) []string {
	switch {
	case call == "Version":
		return []string{FaultError, FaultHang, FaultSlow}
	case malforms[call] == nil:
		return nil
	case streams[call]:
		return []string{FaultError, FaultHang, FaultSlow, FaultTruncate, FaultMalform}
	}
	return []string{FaultError, FaultHang, FaultSlow, FaultMalform}
}

// Malforms returns the ways in which the answer of a call can be malformed.
func Malforms(call string) []Malform { return slices.Clone(malforms[call]) }

// String returns the fault in the form of a pattern, such as
// "ContainerStatus/hang/once".
func (f Fault) String() string {
	when := FaultAlways
	switch {
	case f.Probability > 0:
		when = FaultRandom
	case f.Times > 0:
		when = FaultOnce
	}
	return cmp.Or(f.RPC, anyFault) + "/" + f.Kind() + "/" + when
}

// Kind returns the kind of the fault: the worst that happens to a call.
func (f Fault) Kind() string {
	switch {
	case f.Malform != 0:
		return FaultMalform
	case f.Hang:
		return FaultHang
	case f.Messages > 0:
		return FaultTruncate
	case f.Code != codes.OK:
		return FaultError
	}
	return FaultSlow
}

// DrawFaults returns one fault for each pattern. A pattern is CALL/KIND/WHEN,
// such as "ContainerStatus/hang/once": one of [FaultCalls], one of [FaultKinds],
// and once, always or random. A * stands for one that is drawn. The seed
// determines everything that is drawn: codes, delays, and the times From and
// Until within lasting.
func DrawFaults(seed uint64, lasting time.Duration, patterns ...string) ([]Fault, error) {
	rng := rand.New(rand.NewPCG(seed, 0x7363686564756c65))
	faults := make([]Fault, 0, len(patterns))
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		faults = append(faults, p.draw(rng, lasting))
	}
	return faults, nil
}

type pattern struct{ call, kind, when string }

func parsePattern(text string) (pattern, error) {
	words := strings.Split(text, "/")
	if len(words) != 3 {
		return pattern{}, fmt.Errorf("fault %q: want CALL/KIND/WHEN, such as ContainerStatus/hang/once or */error/random", text)
	}
	p := pattern{words[0], words[1], words[2]}
	if p.call != anyFault && FaultKinds(p.call) == nil {
		return p, fmt.Errorf("fault %q: call %q: want one of *, %s", text, p.call, strings.Join(FaultCalls(), ", "))
	}
	if len(p.calls()) == 0 {
		return p, fmt.Errorf("fault %q: kind %q: %s has *, %v", text, p.kind, p.call, FaultKinds(p.call))
	}
	if !slices.Contains([]string{anyFault, FaultOnce, FaultAlways, FaultRandom}, p.when) {
		return p, fmt.Errorf("fault %q: %q: want once, always, random or *", text, p.when)
	}
	return p, nil
}

// calls returns the calls that have the kind.
func (p pattern) calls() []string {
	return slices.DeleteFunc(FaultCalls(), func(call string) bool {
		return p.call != anyFault && call != p.call || p.kind != anyFault && !slices.Contains(FaultKinds(call), p.kind)
	})
}

func (p pattern) draw(rng *rand.Rand, lasting time.Duration) Fault {
	f := Fault{RPC: pick(rng, p.calls())}
	kind, when := p.kind, p.when
	if kind == anyFault {
		kind = pick(rng, FaultKinds(f.RPC))
	}
	if when == anyFault {
		when = pick(rng, []string{FaultOnce, FaultAlways, FaultRandom})
	}
	part := func(least, most float64) time.Duration {
		share := least + (most-least)*rng.Float64()
		return time.Duration(share * float64(lasting)).Round(time.Millisecond)
	}
	f.From = part(0, 0.5)
	f.Until = f.From + max(part(0.1, 0.4), time.Millisecond)
	switch when {
	case FaultOnce:
		f.From, f.Times, f.After = 0, 1, rng.IntN(8)
	case FaultRandom:
		f.Probability, f.Seed = math.Round(100*(0.1+0.6*rng.Float64()))/100, rng.Uint64()>>32+1
	}
	f.drawKind(rng, kind)
	return f
}

func (f *Fault) drawKind(rng *rand.Rand, kind string) {
	switch kind {
	case FaultError:
		f.Code = pick(rng, []codes.Code{
			codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented,
		})
	case FaultHang:
		f.Hang = true
	case FaultSlow:
		f.Latency = Latency{P50: time.Duration(10+rng.IntN(1990)) * time.Millisecond}
	case FaultTruncate:
		f.Code, f.Message, f.Messages = codes.Unavailable, "stream broken", 1+rng.IntN(3)
	case FaultMalform:
		f.Malform = pick(rng, malforms[f.RPC])
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// Play injects each fault at its time From and clears it at its time Until. The
// times start with the first call of a client; a fault without From holds for
// that call too. Play returns nil when all faults are cleared. If ctx ends
// first, Play clears them and returns context.Cause.
//
// A stream of events meets a fault when it is opened. So Play breaks the open
// streams when a fault of GetContainerEvents begins and when it ends.
func (rt *Runtime) Play(ctx context.Context, faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("simruntime: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range faults {
		group.Go(func() error { return rt.play(ctx, f) })
	}
	return group.Wait()
}

func (rt *Runtime) play(ctx context.Context, f Fault) error {
	if f.From > 0 {
		if err := rt.SleepAfterCall(ctx, f.From); err != nil {
			return err
		}
	}
	id := rt.faults.add(f)
	rt.breakEventsFor(f)
	defer func() {
		rt.Clear(id)
		rt.breakEventsFor(f)
	}()
	if f.Until == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return rt.SleepAfterCall(ctx, f.Until-f.From)
}

func (rt *Runtime) breakEventsFor(f Fault) {
	if f.RPC == rpcEvents {
		rt.BreakEvents()
	}
}

// SleepAfterCall waits for the first call of a client, and then for d. If ctx ends
// first, it returns context.Cause.
func (rt *Runtime) SleepAfterCall(ctx context.Context, d time.Duration) error {
	select {
	case <-rt.Called():
		return sleep(ctx, d)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
