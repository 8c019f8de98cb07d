package cri

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// known is what the last list of all pods showed. It is never changed.
type known struct {
	pods []*pleg.Pod
	// unlabelled are the pods of which the kubelet's label does not find every
	// sandbox and container: another client has made them.
	unlabelled map[pleg.PodUID]struct{}
}

func newKnown(l *lists) *known {
	return &known{pods: l.last, unlabelled: l.joiner.unlabelled}
}

// ListPod returns one pod as ListPods would, or nil if the runtime shows that it
// is gone. The pod is found by the kubelet's label with two lists at once. A pod
// that this cannot find for certain, since another client than the kubelet made
// it or a part of it, is taken from a list of all pods; those who wait for one
// share it. It blocks until the runtime has answered or ctx or
// Options.ListTimeout has ended; the error wraps the grpc status.
func (c *Client) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	if !c.labelFinds(uid) {
		return c.pickPod(ctx, uid)
	}
	pods, certain, err := c.listLabelled(ctx, uid)
	switch {
	case err != nil:
		return nil, fmt.Errorf("list pod %s: %w", uid, err)
	case !certain:
		return c.pickPod(ctx, uid)
	case len(pods) == 0:
		return nil, nil
	}
	return pods[0], nil
}

// labelFinds reports whether the kubelet's label finds all of a pod, as far as
// the last list and the events since tell. Of a pod that they do not know it is
// enough that they know no other client.
func (c *Client) labelFinds(uid pleg.PodUID) bool {
	k := c.known.Load()
	if k == nil || c.strangers.Load() != c.strangersListed.Load() {
		return false
	}
	if _, ok := k.unlabelled[uid]; ok {
		return false
	}
	return len(k.unlabelled) == 0 || slices.ContainsFunc(k.pods, func(p *pleg.Pod) bool { return p.UID == uid })
}

// listLabelled lists what has the label of a pod. It is certain if that makes
// this pod, or nothing at all.
func (c *Client) listLabelled(ctx context.Context, uid pleg.PodUID) (pods []*pleg.Pod, certain bool, err error) {
	label := map[string]string{labelPodUID: string(uid)}
	sandboxes, containers := newSandboxTable(), newContainerTable()
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	calls, ctx := errgroup.WithContext(ctx)
	calls.Go(func() error {
		request := &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}}
		return c.wrapList("list pod sandboxes", c.invoke(ctx, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, request, sandboxes))
	})
	calls.Go(func() error {
		request := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: label}}
		return c.wrapList("list containers", c.invoke(ctx, runtimeapi.RuntimeService_ListContainers_FullMethodName, request, containers))
	})
	if err := calls.Wait(); err != nil {
		return nil, false, err
	}
	for _, s := range sandboxes.items {
		c.sightings.add(s.ID)
	}
	j := newJoiner()
	pods = j.join(sandboxes.items, containers.items)
	certain = len(sandboxes.skipped)+len(containers.skipped)+len(j.homeless)+len(j.unlabelled) == 0 &&
		(len(pods) == 0 || len(pods) == 1 && pods[0].UID == uid)
	return pods, certain, nil
}

// pickPod lists all pods, unless another has begun to since it was asked.
func (c *Client) pickPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	asked := time.Now()
	l, err := c.takeLists(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { c.lists <- l }()
	if !l.began.After(asked) {
		if _, err := c.listPods(ctx, l); err != nil {
			return nil, fmt.Errorf("list all for pod %s: %w", uid, err)
		}
	}
	if i := slices.IndexFunc(l.last, func(p *pleg.Pod) bool { return p.UID == uid }); i >= 0 {
		return l.last[i], nil
	}
	return nil, nil
}
