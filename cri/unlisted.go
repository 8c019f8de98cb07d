package cri

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// askWithin bounds how long a list waits for sandboxes that it lacks. If the runtime did not return
// a sandbox, the list does not ask for it again until askAgain has passed.
const askWithin, askAgain = time.Second, time.Minute

// unlistedSandbox is a sandbox that a container names and that is not listed.
type unlistedSandbox struct {
	sandbox *item     // nil if it is not known
	asked   time.Time // the time at which the runtime did not return the sandbox
}

// forgetUnlisted forgets all sandboxes except the ones that these containers name.
func (c *Client) forgetUnlisted(orphans []*item) {
	c.unlisted.Range(func(id, _ any) bool {
		if !slices.ContainsFunc(orphans, func(o *item) bool { return o.SandboxID == id }) {
			c.unlisted.Delete(id)
		}
		return true
	})
}

// unlistedSandbox returns a sandbox that is missing in the new list, from the last list or from the
// runtime's answer; nil if neither contains it.
func (c *Client) unlistedSandbox(id pleg.ContainerID) *item {
	if s, ok := c.unlisted.Load(id); ok {
		return s.(unlistedSandbox).sandbox
	}
	last := c.last.Load()
	if last == nil || id == "" {
		return nil
	}
	for _, p := range last.pods {
		if i := slices.IndexFunc(p.Sandboxes, func(s *pleg.Container) bool { return s.ID == id }); i >= 0 {
			uid, _, _ := strings.Cut(string(p.UID), "@") // of one that shares its UID
			s := &item{Container: p.Sandboxes[i], podUID: pleg.PodUID(uid), podName: p.Name, podNamespace: p.Namespace, labels: p.Labels}
			c.unlisted.Store(id, unlistedSandbox{sandbox: s})
			return s
		}
	}
	return nil
}

// askUnlisted asks the runtime for the sandboxes that containers name, that are not listed, and
// that would name a pod or give it its labels. It reports whether the runtime knew any of these
// sandboxes. It waits for at most askWithin. If it learns nothing of a pod, the name and labels
// stay those in the kubelet's labels of its containers.
func (c *Client) askUnlisted(ctx context.Context, j *joiner) bool {
	var ids []pleg.ContainerID
	for _, o := range j.orphans {
		g := j.find(o)
		s, asked := c.unlisted.Load(o.SandboxID)
		ask := !asked || s.(unlistedSandbox).sandbox == nil && time.Since(s.(unlistedSandbox).asked) >= askAgain
		if ask && o.SandboxID != "" && (g == nil || len(g.sandboxes) == 0) && !slices.Contains(ids, o.SandboxID) {
			ids = append(ids, o.SandboxID)
		}
	}
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

// askSandbox asks for one sandbox.
func (c *Client) askSandbox(ctx context.Context, id pleg.ContainerID) unlistedSandbox {
	answer, err := statusCall(ctx, c, sandboxCall("", id), c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: string(id)})
	st := answer.GetStatus()
	s := sandboxItem(&runtimeapi.PodSandbox{Id: st.GetId(), Metadata: st.GetMetadata(), Labels: st.GetLabels()})
	if err != nil || s.ID != id || s.podUID == "" {
		c.opts.Logger.DebugContext(ctx, "sandbox of a container not known", "podSandboxID", id, "err", err)
		return unlistedSandbox{asked: time.Now()}
	}
	return unlistedSandbox{sandbox: s}
}
