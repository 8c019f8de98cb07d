package simruntime

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Latency is how long a call takes. The zero value is no time at all.
type Latency struct {
	// P50 is the median; with no P99, the time of every call.
	P50 time.Duration
	// P99, if above P50, makes a heavy tail: times are drawn from the
	// log-normal distribution with these two percentiles, cut off at 10 x P99.
	P99 time.Duration
}

func (l Latency) validate() error {
	if l.P50 < 0 || l.P99 < 0 {
		return fmt.Errorf("latency is negative: p50 %v, p99 %v", l.P50, l.P99)
	}
	if l.P50 == 0 && l.P99 != 0 {
		return fmt.Errorf("latency has p99 %v but no p50", l.P99)
	}
	return nil
}

// normal99 is the 99th percentile of the standard normal distribution.
const normal99 = 2.3263478740408408

func (l Latency) draw(rng *rand.Rand) time.Duration {
	if l.P99 <= l.P50 {
		return l.P50
	}
	sigma := math.Log(float64(l.P99)/float64(l.P50)) / normal99
	d := float64(l.P50) * math.Exp(sigma*rng.NormFloat64())
	return time.Duration(min(d, 10*float64(l.P99)))
}

// Profile is a latency for each RPC, by its name in the CRI ("ListContainers").
// An RPC that is not in it takes no time.
type Profile map[string]Latency

// The names of the predefined profiles.
const (
	// ProfileZero has no latency.
	ProfileZero = "zero"
	// ProfileNode has the latencies of a busy node: ContainerStatus 12 ms,
	// PodSandboxStatus 5 ms, ListContainers 30 ms, ListPodSandbox 18 ms.
	ProfileNode = "node"
	// ProfileTail has the medians of ProfileNode and a p99 of 20 times that.
	ProfileTail = "tail"
)

// NewProfile returns a copy of a predefined profile, which the caller may change.
func NewProfile(name string) (Profile, error) {
	node := Profile{
		"ContainerStatus":    {P50: 12 * time.Millisecond},
		"PodSandboxStatus":   {P50: 5 * time.Millisecond},
		"ListContainers":     {P50: 30 * time.Millisecond},
		"ListPodSandbox":     {P50: 18 * time.Millisecond},
		"StreamContainers":   {P50: 30 * time.Millisecond},
		"StreamPodSandboxes": {P50: 18 * time.Millisecond},
	}
	switch name {
	case ProfileZero:
		return Profile{}, nil
	case ProfileNode:
		return node, nil
	case ProfileTail:
		for rpc, l := range node {
			node[rpc] = Latency{P50: l.P50, P99: 20 * l.P50}
		}
		return node, nil
	}
	return nil, fmt.Errorf("latency profile %q: want %s, %s or %s", name, ProfileZero, ProfileNode, ProfileTail)
}

func (p Profile) validate() error {
	for _, rpc := range slices.Sorted(maps.Keys(p)) {
		if !rpcNames[rpc] {
			return fmt.Errorf("no RPC %q in the CRI", rpc)
		}
		if err := p[rpc].validate(); err != nil {
			return fmt.Errorf("%s: %w", rpc, err)
		}
	}
	return nil
}

// rpcNames are the RPCs of CRI v1, of both services.
var rpcNames = func() map[string]bool {
	names := map[string]bool{}
	for _, m := range append(slices.Clone(cri.RuntimeService_ServiceDesc.Methods), cri.ImageService_ServiceDesc.Methods...) {
		names[m.MethodName] = true
	}
	for _, m := range append(slices.Clone(cri.RuntimeService_ServiceDesc.Streams), cri.ImageService_ServiceDesc.Streams...) {
		names[m.StreamName] = true
	}
	return names
}()

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
