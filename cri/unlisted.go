package cri

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// askWithin bounds what a list waits for the sandboxes that it does not have, maxAsked the
	// number of them that it asks for.
	askWithin = time.Second
	maxAsked  = 100
	// askAgain is how long a sandbox is left alone of which the runtime said nothing.
	askAgain = time.Minute
)

// unlistedSandbox is a sandbox that a container names and that is not listed.
type unlistedSandbox struct {
	sandbox *item     // nil if it is not known
	asked   time.Time // when the runtime failed to answer; zero if it need not be asked
}

// forgetUnlisted forgets all sandboxes except the ones that these containers name.
func (c *Client) forgetUnlisted(orphans []*item) {
	named := make(map[pleg.ContainerID]bool, len(orphans))
	for _, o := range orphans {
		named[o.SandboxID] = true
	}
	c.unlisted.Range(func(id, _ any) bool {
		if !named[id.(pleg.ContainerID)] {
			c.unlisted.Delete(id)
		}
		return true
	})
}

// unlistedSandbox returns a sandbox that is not listed, as the last list had it or as the runtime
// answered; nil if neither did.
func (c *Client) unlistedSandbox(id pleg.ContainerID) *item {
	if s, ok := c.unlisted.Load(id); ok {
		return s.(unlistedSandbox).sandbox
	}
	k := c.known.Load()
	if k == nil || id == "" {
		return nil
	}
	for _, p := range k.pods {
		if i := slices.IndexFunc(p.Sandboxes, func(s *pleg.Container) bool { return s.ID == id }); i >= 0 {
			s := &item{Container: p.Sandboxes[i], podUID: k.ownUID(p), podName: p.Name, podNamespace: p.Namespace, labels: p.Labels}
			c.unlisted.Store(id, unlistedSandbox{sandbox: s})
			return s
		}
	}
	return nil
}

// askUnlisted asks the runtime for the sandboxes that containers name, that are not listed, and
// that would name a pod or give it its labels. It reports whether the runtime knew any of them. It
// waits for at most askWithin; a pod of which it learns nothing keeps what the kubelet's labels of
// its containers say.
func (c *Client) askUnlisted(ctx context.Context, j *joiner) bool {
	ids := c.toAsk(j)
	if len(ids) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var calls errgroup.Group
	calls.SetLimit(podCalls)
	for _, id := range ids {
		calls.Go(func() error {
			c.unlisted.Store(id, c.askSandbox(ctx, id))
			return nil
		})
	}
	_ = calls.Wait()
	return slices.ContainsFunc(ids, func(id pleg.ContainerID) bool { return c.unlistedSandbox(id) != nil })
}

func (c *Client) toAsk(j *joiner) (ids []pleg.ContainerID) {
	for _, o := range j.orphans {
		g := j.group(o)
		if o.SandboxID == "" || g != nil && len(g.sandboxes) > 0 || len(ids) == maxAsked || slices.Contains(ids, o.SandboxID) {
			continue
		}
		known, _ := c.unlisted.Load(o.SandboxID)
		if s, ok := known.(unlistedSandbox); !ok || !s.asked.IsZero() && time.Since(s.asked) >= askAgain {
			ids = append(ids, o.SandboxID)
		}
	}
	return ids
}

// askSandbox asks for one sandbox. A sandbox that is gone, or is of no pod, need not be asked
// again.
func (c *Client) askSandbox(ctx context.Context, id pleg.ContainerID) unlistedSandbox {
	answer, err := statusCall(ctx, c, sandboxCall("", &pleg.Container{ID: id}), c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(id)})
	if status.Code(err) == codes.NotFound {
		return unlistedSandbox{}
	}
	st := answer.GetStatus()
	if err == nil && st.GetId() != string(id) {
		err = fmt.Errorf("the status is of %q", st.GetId())
	}
	if err != nil {
		c.opts.Logger.DebugContext(ctx, "sandbox of a container not known", "podSandboxID", id, "err", err)
		return unlistedSandbox{asked: time.Now()}
	}
	s := sandboxItem(&runtimeapi.PodSandbox{Id: st.GetId(), Metadata: st.GetMetadata(), Labels: st.GetLabels()})
	if s.podUID == "" {
		return unlistedSandbox{}
	}
	return unlistedSandbox{sandbox: s}
}
