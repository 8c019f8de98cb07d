package simruntime

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// rpcEvents does not take part in the concurrency limit.
const rpcEvents = "GetContainerEvents"

// call is one RPC that is delayed by the limit, changed by faults and counted.
type call struct {
	rt       *Runtime
	rpc      string
	limit    *semaphore.Weighted
	executed int // 1 once the limit has admitted it
	started  time.Time
	faults   []*rule // the rules that affect the call
}

// admit counts a call and waits for its place, or returns the error that the call fails
// with. The caller calls leave in either case.
func (rt *Runtime) admit(ctx context.Context, rpc string, req any) (*call, error) {
	c := &call{rt: rt, rpc: rpc}
	rt.stats.closeOnce.Do(func() { close(rt.stats.called) })
	rt.stats.count(rpc, 0, func(r *RPCStats) {
		r.Calls++
		if v, ok := req.(interface{ GetVerbose() bool }); ok && v.GetVerbose() {
			r.Verbose++
		}
	})
	if rpc != rpcEvents {
		c.limit = rt.limit.Load()
		if c.limit.Acquire(ctx, 1) != nil {
			return c, contextError(ctx)
		}
		c.executed = 1
		c.started = time.Now()
	}
	c.faults = rt.faults.hit(rpc, rt.target(req))
	rt.stats.count(rpc, c.executed, func(r *RPCStats) {
		if len(c.faults) > 0 {
			r.Spoiled++
		}
	})
	return c, c.happen(ctx, 0)
}

func (c *call) leave() {
	c.rt.stats.count(c.rpc, -c.executed, func(r *RPCStats) {
		if c.executed > 0 {
			r.Time += time.Since(c.started)
		}
	})
	if c.executed > 0 { // after it was counted: the peak never exceeds the bound
		c.limit.Release(1)
	}
}

// happen lets the faults happen that wait for this number of messages.
func (c *call) happen(ctx context.Context, sent int) error {
	for _, r := range c.faults {
		if r.Messages != sent {
			continue
		}
		if err := r.happen(ctx, c.rpc); err != nil {
			return err
		}
	}
	return nil
}

// contextError returns the error of a gRPC server whose call has ended.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errBroken) {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}

type malformKey struct{}

// malformOf returns the faults that malform the answer to a list or a status call.
func malformOf(ctx context.Context) []*rule {
	faults, _ := ctx.Value(malformKey{}).([]*rule)
	return faults
}

// unary intercepts each unary call.
func (rt *Runtime) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	c, err := rt.admit(ctx, path.Base(info.FullMethod), req)
	defer c.leave()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.faults, func(r *rule) bool { return r.Malform != "" }) {
		ctx = context.WithValue(ctx, malformKey{}, c.faults)
	}
	return handler(ctx, req)
}

// target returns the pod and the object that a request is about.
func (rt *Runtime) target(req any) target {
	switch r := req.(type) {
	case interface{ GetFilter() *cri.ContainerFilter }:
		f := r.GetFilter()
		return rt.targetOf(f.GetPodSandboxId(), f.GetId(), f.GetLabelSelector())
	case interface{ GetFilter() *cri.PodSandboxFilter }:
		f := r.GetFilter()
		return rt.targetOf(f.GetId(), "", f.GetLabelSelector())
	case interface{ GetContainerId() string }:
		return rt.targetOf("", r.GetContainerId(), nil)
	case interface{ GetPodSandboxId() string }:
		return rt.targetOf(r.GetPodSandboxId(), "", nil)
	}
	return target{}
}

func (rt *Runtime) targetOf(sandboxID, containerID string, labels map[string]string) target {
	if sandboxID == "" && containerID == "" {
		return target{podUID: pleg.PodUID(labels[labelPodUID])}
	}
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	t := target{id: pleg.ContainerID(cmp.Or(containerID, sandboxID))}
	o := cmp.Or(rt.state.byID[containerID], rt.state.byID[sandboxID])
	if t.missing = o == nil; !t.missing {
		t.podUID = o.uid()
	}
	return t
}
