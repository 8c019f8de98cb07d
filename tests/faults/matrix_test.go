// Package faults_test runs the pipeline on a simulated runtime that fails in every way
// that package simruntime can simulate, and checks that a fault costs nothing but time.
//
// In each case:
//
//   - after the faults have ended and the pods rest, the cache equals the runtime;
//   - the events of each container are in order, none is repeated, and the last one
//     agrees with the container; none is missing if the pipeline follows CRI events
//     and the fault does not affect them;
//   - subscribers of all kinds, in the process and over the socket, get what is promised to them;
//   - GetNewerThan returns, with nothing older than its call;
//   - Healthy is false while no list can succeed, and true in the end;
//   - nothing panics and no goroutine leaks.
//
// Two faults look like the truth to the pipeline, so less is checked there. A list with a wrong id
// says that containers are gone. A container whose state the list does not know may be reported as
// started again, as the kubelet does.
package faults_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

var (
	allFaults   = flag.Bool("faults.all", false, "run all of TestFaultMatrix: also faults at random, and each fault with and without events")
	randomSeed  = flag.Uint64("faults.seed", 0, "run TestRandomFaults with this seed only (0: many)")
	randomSeeds = flag.Uint64("faults.seeds", 10, "number of seeds of TestRandomFaults")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// A fault that is always or random holds from faultsFrom to faultsUntil, never at the moment of
	// a change; a fault that hits once may do so until the end of the churn.
	faultsFrom  = 2900 * time.Millisecond
	faultsUntil = 8900 * time.Millisecond
	// healthAt is the time at which Healthy is called, shortly before the fault ends.
	healthAt = 8800 * time.Millisecond
	// rest is long enough for a list, and for the inspections after it.
	rest = 6 * time.Second
	// restAfterStream is the longest backoff of a stream, and the list after it.
	restAfterStream = 25 * time.Second
)

// TestFaultMatrix runs every call of the pipeline with every fault: once, always and at
// random, with and without events. "make test" runs each fault once with and always without
// events, or the other way round; "make faults" runs all.
func TestFaultMatrix(t *testing.T) {
	for n, r := range rows() {
		for w, when := range []string{once, always, random} {
			for i, m := range r.modes() {
				if !*allFaults && (when == random || len(r.modes()) > 1 && i != (n+w)%2) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s/%v", r.RPC, r.name(), when, m), func(t *testing.T) {
					t.Parallel()
					s := scenario{seed: uint64(n), pods: 3, containers: 2, rate: 2, mode: m, faults: []row{r.at(when)}}
					if when == once {
						s.churn, s.alone = churnEndOfOnce, true
					}
					// A list with a wrong id says that a container is gone, and the next one that it is back.
					s.alone = s.alone || strings.HasSuffix(r.name(), "wrong-id")
					if s.run(t, r.healthy(when)) == 0 {
						t.Error("no call was spoiled: this tests nothing")
					}
				})
			}
		}
	}
}

// TestRandomFaults runs several faults at once, all drawn from the seed.
func TestRandomFaults(t *testing.T) {
	first, last := uint64(1), *randomSeeds
	if *randomSeed != 0 {
		first, last = *randomSeed, *randomSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			s := drawScenario(seed)
			s.run(t, healthyOrNot)
			if t.Failed() {
				t.Logf("to repeat: go test ./tests/faults -run TestRandomFaults -faults.seed %d\n%+v", seed, s)
			}
		})
	}
}

// regressions are mixes of faults. Each of them has found a bug.
var regressions = map[string]scenario{
	"late events": {seed: 4, pods: 3, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ContainerStatus", Times: 1, Latency: latency(1417)}, 0, 6246 * time.Millisecond},
		{simruntime.Fault{RPC: "ListContainers", Latency: latency(538)}, 1414 * time.Millisecond, 5546 * time.Millisecond},
		{simruntime.Fault{RPC: "GetContainerEvents", Latency: latency(1432)}, 846 * time.Millisecond, 4407 * time.Millisecond},
	}},
	"no metadata": {seed: 5, pods: 3, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ListContainers", Malform: simruntime.NilMetadata, Probability: 0.39, Seed: 3465407077}, 1870 * time.Millisecond, 3550 * time.Millisecond},
		{simruntime.Fault{RPC: "ListPodSandbox", Malform: simruntime.NilMetadata, After: 4, Times: 1}, 0, 8516 * time.Millisecond},
	}},
	"a sandbox that only an event has shown, and no list by id": {seed: 39, pods: 8, containers: 2, rate: 3, faults: []row{
		{simruntime.Fault{RPC: "ListPodSandbox", Code: codes.ResourceExhausted}, 552 * time.Millisecond, 3895 * time.Millisecond},
		{simruntime.Fault{RPC: "ListContainers", Code: codes.ResourceExhausted, Probability: 0.27, Seed: 4266696077}, 1274 * time.Millisecond, 4548 * time.Millisecond},
	}},
}

func latency(ms int) time.Duration {
	return time.Duration(ms) * time.Millisecond
}

func TestRegressions(t *testing.T) {
	for name, regression := range regressions {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/%v", name, m), func(t *testing.T) {
				t.Parallel()
				s := regression
				s.mode = m
				s.run(t, healthyOrNot)
			})
		}
	}
}

// health is the result that Healthy must return shortly before the faults end.
type health int

const (
	healthyOrNot health = iota
	healthy
	unhealthy
)

// run runs a scenario in a bubble and returns the number of spoiled calls.
func (s scenario) run(t *testing.T, want health) (spoiled int64) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, s)
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			if want == healthyOrNot {
				return
			}
			time.Sleep(healthAt - time.Since(f.start))
			if ok, err := f.Healthy(); ok != (want == healthy) {
				t.Errorf("during the fault healthy is %t, %v", ok, err)
			}
		}()
		f.play()
		<-checked
		wait := rest
		if slices.ContainsFunc(s.faults, func(f row) bool { return f.RPC == "GetContainerEvents" }) {
			wait = restAfterStream
		}
		time.Sleep(wait)
		f.waits.Wait()
		f.reinspectDenied()
		if ok, err := f.Healthy(); !ok {
			t.Errorf("unhealthy in the end: %v", err)
		}
		f.audience.unread(pleg.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch(), Seq: 1}})
		time.Sleep(timeToRead)
		f.audience.require(t, f.RequirePromises(promised(s)))
		spoiled = f.spoiledCalls()
	})
	return spoiled
}

// reinspectDenied requests an inspection of each pod if a status call returned NotFound for a
// listed container or sandbox: the pipeline believes that answer.
func (f *fixture) reinspectDenied() {
	for _, fault := range f.scenario.faults {
		if fault.Code != codes.NotFound {
			continue
		}
		for _, p := range f.Node.Pods() {
			f.RequestReinspect(p.UID)
		}
		time.Sleep(5 * time.Second)
	}
}

// The kinds of faults.
const (
	failing   = "error"
	hanging   = "hang"
	slow      = "slow"
	truncated = "truncate" // The stream breaks after some messages.
	malformed = "malform"
)

// How often a fault hits.
const (
	once   = "once"
	always = "always"
	random = "random"
)

// row is a call and the way in which it fails.
type row struct {
	simruntime.Fault
	// from and until are when it holds, after the first call; until the end if until is zero.
	from, until time.Duration
}

// errorCodes are the RPCs of a pipeline, and the codes that each fails with. Some texts mean
// something to a client of Kubernetes or gRPC.
var errorCodes = []struct {
	rpc   string
	codes []codes.Code
}{
	{"ContainerStatus", []codes.Code{codes.Unavailable, codes.NotFound}},
	{"GetContainerEvents", []codes.Code{codes.Unavailable, codes.Unimplemented}},
	{"ListContainers", []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented}},
	{"ListPodSandbox", []codes.Code{codes.Unavailable, codes.Unimplemented}}, // no single sandbox is too large
	{"PodSandboxStatus", []codes.Code{codes.Unavailable, codes.NotFound}},
}

// malforms returns the ways in which the answer of a call can be malformed.
func malforms(call string) []simruntime.Malform {
	all := []simruntime.Malform{simruntime.NilMetadata, simruntime.UnknownState, simruntime.WrongID}
	switch {
	case call == "GetContainerEvents":
		return append(all, simruntime.NilStatus, simruntime.DuplicateIDs)
	case strings.HasSuffix(call, "Status"):
		return append(all, simruntime.NilStatus)
	case strings.HasSuffix(call, "Containers"):
		return append(all, simruntime.DuplicateIDs, simruntime.OrphanContainers)
	}
	return append(all, simruntime.DuplicateIDs)
}

// kind returns the kind of a fault: the worst that happens to a call.
func kind(f simruntime.Fault) string {
	switch {
	case f.Malform != "":
		return malformed
	case f.Hang:
		return hanging
	case f.Messages > 0:
		return truncated
	case f.Code != codes.OK:
		return failing
	}
	return slow
}

// rows returns every call with every way in which it can fail.
func rows() (all []row) {
	for _, call := range errorCodes {
		add := func(f simruntime.Fault) {
			f.RPC = call.rpc
			all = append(all, row{Fault: f})
		}
		for _, code := range call.codes {
			add(simruntime.Fault{Code: code})
		}
		add(simruntime.Fault{Hang: true})
		add(simruntime.Fault{}) // slow
		if call.rpc == "GetContainerEvents" {
			add(simruntime.Fault{Messages: 1, Code: codes.Unavailable, Message: "stream broken"})
		}
		for _, malform := range malforms(call.rpc) {
			add(simruntime.Fault{Malform: malform})
		}
	}
	return all
}

func (r row) name() string {
	switch kind := kind(r.Fault); kind {
	case failing:
		return "error=" + r.Code.String()
	case malformed:
		return "malform=" + string(r.Malform)
	default:
		return kind
	}
}

// at returns the fault of one case of the matrix, with its times.
func (r row) at(when string) row {
	f := r
	switch when {
	case once:
		f.After, f.Times = 1, 1
		if f.RPC == "GetContainerEvents" { // the client opens a stream only if one breaks
			f.After, f.from = 0, faultsFrom
		}
	case random:
		f.Probability, f.Seed = 0.6, 7
		fallthrough
	case always:
		f.from, f.until = faultsFrom, faultsUntil
	}
	if kind(f.Fault) == slow {
		f.Latency = 800 * time.Millisecond
	}
	return f
}

// draw returns the fault at random times, with a code, delay or number of messages that is
// drawn too.
func (r row) draw(rng *rand.Rand) row {
	f := r
	part := func(least, most float64) time.Duration {
		share := least + (most-least)*rng.Float64()
		return time.Duration(share * float64(churnEnd)).Round(time.Millisecond)
	}
	f.from = part(0, 0.5)
	f.until = f.from + part(0.1, 0.4)
	switch rng.IntN(3) {
	case 0:
		f.from, f.Times, f.After = 0, 1, rng.IntN(8)
	case 1:
		f.Probability, f.Seed = math.Round(100*(0.1+0.6*rng.Float64()))/100, rng.Uint64()>>32+1
	}
	switch kind(f.Fault) {
	case failing:
		all := []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unimplemented}
		f.Code = all[rng.IntN(len(all))]
	case slow:
		f.Latency = time.Duration(10+rng.IntN(1990)) * time.Millisecond
	case truncated:
		f.Messages = 1 + rng.IntN(3)
	}
	return f
}

// modes returns the modes in which the pipeline makes the call.
func (r row) modes() []pipeline.EventsMode {
	var fit []pipeline.EventsMode
	for _, m := range modes {
		if m != pipeline.EventsOff || r.RPC != "GetContainerEvents" {
			fit = append(fit, m)
		}
	}
	return fit
}

// healthy returns the result that Healthy must return shortly before the fault ends.
func (r row) healthy(when string) health {
	kind := kind(r.Fault)
	switch {
	case when != always:
		return healthyOrNot
	case strings.HasSuffix(r.RPC, "Status") && kind == hanging:
		return healthyOrNot // unhealthy once two pods have waited for the threshold
	case !isList(r.Fault), kind == slow, kind == malformed:
		return healthy
	}
	return unhealthy
}

func isList(f simruntime.Fault) bool {
	return strings.HasPrefix(f.RPC, "List")
}

// promised returns the promises about the events of a scenario.
func promised(s scenario) promises.Stream {
	p := promises.Stream{All: s.mode != pipeline.EventsOff}
	for _, f := range s.faults {
		switch {
		case f.RPC == "GetContainerEvents":
			p.All = false
		case strings.HasSuffix(f.RPC, "Status"):
			// While the inspections of a pod fail, its changes are merged.
			p.All = p.All && kind(f.Fault) == slow
		case isList(f.Fault) && f.Malform == simruntime.UnknownState:
			p.Repeats = true
		case isList(f.Fault) && f.Malform == simruntime.WrongID:
			p.Lies, p.All = true, false
		}
	}
	return p
}

// drawScenario draws the faults, at least one of them of a call that is made, and
// how the pipeline learns of changes.
func drawScenario(seed uint64) scenario {
	rng := rand.New(rand.NewPCG(seed, 9))
	s := scenario{seed: seed, pods: 1 + rng.IntN(12), containers: 1 + rng.IntN(2), rate: 5, mode: modes[rng.IntN(len(modes))]}
	all := rows()
	made := slices.DeleteFunc(rows(), func(r row) bool { return r.RPC != "ContainerStatus" })
	s.faults = append(s.faults, made[rng.IntN(len(made))].draw(rng))
	for range rng.IntN(5) {
		s.faults = append(s.faults, all[rng.IntN(len(all))].draw(rng))
	}
	return s
}
