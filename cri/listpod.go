package cri

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// lastList is the result of the last list of all pods. It is immutable.
type lastList struct {
	pods []*pleg.Pod
	// unlabelled are the pods with sandboxes or containers that the kubelet's label
	// does not find, because another client created them.
	unlabelled map[pleg.PodUID]struct{}
}

// ListPod returns one pod as ListPods would, or nil if the runtime does not list it. Two list calls
// find it by the kubelet's label. If another client than the kubelet made a part of the pod, or these
// lists are too large, ListPod takes it from a list of all pods. It blocks and fails as ListPods does.
func (c *Client) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	if !c.labelFinds(uid) {
		return c.pickPod(ctx, uid)
	}
	pods, certain, err := c.listLabelled(ctx, uid)
	switch {
	case isTooLarge(err) || err == nil && !certain:
		return c.pickPod(ctx, uid)
	case err != nil:
		return nil, fmt.Errorf("list pod %s: %w", uid, err)
	case len(pods) == 0:
		return nil, nil
	}
	return pods[0], nil
}

// labelFinds reports whether the kubelet's label finds all of a pod, according to the last list. For
// a pod that is not in that list, it reports whether no listed pod is unlabelled.
func (c *Client) labelFinds(uid pleg.PodUID) bool {
	last := c.last.Load()
	if last == nil {
		return false
	}
	_, unlabelled := last.unlabelled[uid]
	return !unlabelled && (len(last.unlabelled) == 0 || slices.ContainsFunc(last.pods, func(p *pleg.Pod) bool { return p.UID == uid }))
}

// listLabelled lists everything with the label of a pod. The result is certain if it
// is complete and contains this pod alone, or nothing.
func (c *Client) listLabelled(ctx context.Context, uid pleg.PodUID) (pods []*pleg.Pod, certain bool, err error) {
	label := map[string]string{labelPodUID: string(uid)}
	l := newLists(c)
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	calls, callCtx := errgroup.WithContext(ctx)
	calls.Go(func() error {
		return c.list(callCtx, uid, l.sandboxes, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}})
	})
	calls.Go(func() error {
		return c.list(callCtx, uid, l.containers, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: label}})
	})
	if err := calls.Wait(); err != nil {
		return nil, false, err
	}
	for _, s := range l.sandboxes.items {
		select {
		case c.seen <- string(s.ID):
		default:
		}
	}
	c.join(ctx, l)
	certain = len(l.sandboxes.skipped)+len(l.containers.skipped)+len(l.joiner.homeless)+len(l.joiner.unlabelled) == 0 &&
		(len(l.last) == 0 || len(l.last) == 1 && l.last[0].UID == uid)
	return l.last, certain, nil
}

// pickPod returns a pod from a list of all pods.
func (c *Client) pickPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	pods, err := c.ListPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("list all for pod %s: %w", uid, err)
	}
	if i := slices.IndexFunc(pods, func(p *pleg.Pod) bool { return p.UID == uid }); i >= 0 {
		return pods[i], nil
	}
	return nil, nil
}
