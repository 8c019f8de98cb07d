package simruntime

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Malform is a way to malform an answer. The zero value changes nothing.
type Malform string

// The ways. In an unfiltered list a fault that names a pod or an object affects
// only its entries; otherwise all entries.
const (
	// NilMetadata omits the metadata of entries or of the status.
	NilMetadata Malform = "nil-metadata"
	// UnknownState sets the state to a number that the CRI does not define.
	UnknownState Malform = "unknown-state"
	// NilStatus answers a status call without a status.
	NilStatus Malform = "nil-status"
	// OrphanContainers lists containers under a sandbox that does not exist.
	OrphanContainers Malform = "orphan-containers"
	// DuplicateIDs lists entries twice.
	DuplicateIDs Malform = "duplicate-ids"
	// WrongID gives entries, or the status, an id that does not exist.
	WrongID Malform = "wrong-id"
)

// Fault is a rule that changes the answers to calls. Several may match one call: they happen in the
// order of Inject, until one answers with an error.
type Fault struct {
	// Which calls. Empty fields match everything; a call that is about no
	// particular pod (an unfiltered list) matches a PodUID or an ID only with
	// Malform.
	RPC    string // The name in the CRI, such as "ContainerStatus".
	PodUID pleg.PodUID
	ID     pleg.ContainerID // The id of a sandbox or a container.

	// How often. The first After matching calls pass. If Times is zero, always from then on, else
	// for this number of matching calls. If Probability is zero, it affects every matching call,
	// else each with that probability: Seed and the number of the matching call alone decide which.
	After       int
	Times       int
	Probability float64
	Seed        uint64 // If zero, the runtime's seed and the order of Inject decide.

	// The effects, in this order.
	Latency time.Duration // For GetContainerEvents, the time from an event to its sending.
	Hang    bool          // The call waits for its end, or for the end of the fault.
	Code    codes.Code    // If not OK, the call fails with this code; ResourceExhausted only if the object exists.
	Message string        // The text of the error. If empty, "injected fault".
	Malform Malform
	// Only for GetContainerEvents: each event is lost with the probability Loss, and hang and error
	// wait until that many Messages have been sent.
	Loss     float64
	Messages int
}

// BusyNode returns the latencies of the calls on a busy node.
func BusyNode() []Fault {
	return []Fault{
		{RPC: "ContainerStatus", Latency: 12 * time.Millisecond},
		{RPC: "PodSandboxStatus", Latency: 5 * time.Millisecond},
		{RPC: "ListContainers", Latency: 30 * time.Millisecond},
		{RPC: "ListPodSandbox", Latency: 18 * time.Millisecond},
	}
}

// Inject adds a fault for the calls to come, until end is called: then calls that hang continue. It
// panics if the CRI does not contain the RPC, or if Messages does not fit it.
func (rt *Runtime) Inject(f Fault) (end func()) {
	if f.RPC != "" && !rpcNames[f.RPC] || f.Messages != 0 && (f.Messages < 0 || f.RPC != rpcEvents) {
		panic(fmt.Sprintf("simruntime: impossible fault: %+v", f))
	}
	r := rt.faults.add(f)
	return func() { rt.faults.remove(func(other *rule) bool { return other == r }) }
}

// ClearAll removes all faults; calls that hang continue.
func (rt *Runtime) ClearAll() { rt.faults.remove(func(*rule) bool { return true }) }

// rpcNames are the RPCs of RuntimeService.
var rpcNames = func() map[string]bool {
	names := map[string]bool{}
	for _, m := range cri.RuntimeService_ServiceDesc.Methods {
		names[m.MethodName] = true
	}
	for _, m := range cri.RuntimeService_ServiceDesc.Streams {
		names[m.StreamName] = true
	}
	return names
}()

// SetMaxConcurrent replaces the bound of calls that execute at once; zero or less means none. The
// new bound does not affect calls that have arrived.
func (rt *Runtime) SetMaxConcurrent(n int) {
	if n <= 0 {
		n = math.MaxInt
	}
	rt.limit.Store(semaphore.NewWeighted(int64(n))) // serves in the order of arrival
}

// rule is an active fault.
type rule struct {
	Fault
	pass int           // matches still to pass
	left int           // matches to come, if Times is set
	gone chan struct{} // closed when the rule is removed
	// rng decides which matches are hit. Each rule uses its own, so that calls that do not match
	// change nothing.
	rng *rand.Rand
}

type faultSet struct {
	seed  uint64
	mu    sync.Mutex
	rules []*rule
	added int
}

func (fs *faultSet) add(f Fault) *rule {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.added++
	r := &rule{Fault: f, pass: f.After, left: f.Times, gone: make(chan struct{}), rng: newRand(f.Seed, "fault")}
	if f.Seed == 0 {
		r.rng = newRand(fs.seed, fmt.Sprint("fault ", fs.added))
	}
	fs.rules = append(fs.rules, r)
	return r
}

func (fs *faultSet) remove(match func(*rule) bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rules = slices.DeleteFunc(fs.rules, func(r *rule) bool {
		if match(r) {
			close(r.gone)
			return true
		}
		return false
	})
}

// target is the pod and the object of a call; empty fields match all. missing is set if the runtime
// has no object with this id.
type target struct {
	podUID  pleg.PodUID
	id      pleg.ContainerID
	missing bool
}

// hit returns the rules that affect a call, in the order of Inject.
func (fs *faultSet) hit(rpc string, tgt target) (hits []*rule) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, r := range fs.rules {
		if r.matches(rpc, tgt) && r.hits() {
			hits = append(hits, r)
		}
	}
	return hits
}

// hits counts a matching call and reports whether the rule affects it. A rule with no calls left stays
// until it is removed: its hung calls go on then.
func (r *rule) hits() bool {
	switch {
	case r.pass > 0:
		r.pass--
		return false
	case r.Times > 0 && r.left == 0:
		return false
	}
	r.left--
	return r.Probability == 0 || r.rng.Float64() < r.Probability
}

func (r *rule) matches(rpc string, tgt target) bool {
	if r.RPC != "" && r.RPC != rpc {
		return false
	}
	if r.Code == codes.ResourceExhausted && tgt.missing {
		return false // the answer would be small: a client may conclude from the error that the object exists
	}
	if tgt == (target{}) && r.Malform != "" {
		return true // the entries concerned are found in the answer
	}
	return (r.PodUID == "" || r.PodUID == tgt.podUID) && (r.ID == "" || r.ID == tgt.id)
}

// happen waits as the fault says, and returns the error that the call answers with. The latency of an event stream
// is that of its events.
func (r *rule) happen(ctx context.Context, rpc string) error {
	if r.Latency > 0 && rpc != rpcEvents && backoff.Wait(ctx, r.Latency) != nil {
		return contextError(ctx)
	}
	if r.Hang {
		select {
		case <-r.gone:
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
	if r.Code != codes.OK {
		return status.Error(r.Code, cmp.Or(r.Message, "injected fault"))
	}
	return nil
}
