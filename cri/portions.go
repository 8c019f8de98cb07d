package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// portionedFor is the time between two attempts to list all sandboxes at once after
// the list was too large. The annotations that make it large rarely shrink, and each
// attempt costs the runtime a whole list.
const portionedFor = 5 * time.Minute

// fallback returns an error while something works only by a fallback, and otherwise nil.
func (c *Client) fallback() error {
	if err := c.degraded.Load(); err != nil {
		return *err
	}
	if last := c.observed.last.Load(); !last.unix || c.conn.GetState() != connectivity.Ready {
		return nil
	}
	if _, err := os.Stat(c.socket); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the socket %s %s", c.socket, gone)
	}
	return nil
}

func isTooLarge(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// portion is a request for a part of a list; id is set if the part is a single sandbox or container.
type portion struct {
	request proto.Message
	id      string
}

// portions divides a request whose answer is too large. A list of sandboxes is divided by state,
// READY first, so that a sandbox that stops meanwhile is in the second list, too. A list of
// containers is divided by sandbox, and then by state. The last step asks for each known sandbox or
// container by its id.
func (l *lists) portions(request proto.Message) (parts []portion) {
	sandbox := func(id string, f *runtimeapi.PodSandboxFilter) {
		parts = append(parts, portion{&runtimeapi.ListPodSandboxRequest{Filter: f}, id})
	}
	container := func(id string, f *runtimeapi.ContainerFilter) {
		parts = append(parts, portion{&runtimeapi.ListContainersRequest{Filter: f}, id})
	}
	switch r := request.(type) {
	case *runtimeapi.ListPodSandboxRequest:
		if r.GetFilter() == nil {
			for state := range runtimeapi.PodSandboxState(len(runtimeapi.PodSandboxState_name)) {
				sandbox("", &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: state}})
			}
			break
		}
		l.refused[""] = struct{}{}
		for id := range l.sandboxIDs() {
			sandbox(id, &runtimeapi.PodSandboxFilter{Id: id})
		}
	case *runtimeapi.ListContainersRequest:
		switch of := r.GetFilter().GetPodSandboxId(); {
		case r.GetFilter() == nil:
			for id := range l.sandboxIDs() {
				container("", &runtimeapi.ContainerFilter{PodSandboxId: id})
			}
		case r.GetFilter().GetState() == nil:
			for state := range runtimeapi.ContainerState(len(runtimeapi.ContainerState_name)) {
				container("", &runtimeapi.ContainerFilter{PodSandboxId: of, State: &runtimeapi.ContainerStateValue{State: state}})
			}
		default:
			l.refused[pleg.ContainerID(of)] = struct{}{}
			for id, known := range l.containers.known {
				if known.item.SandboxID == pleg.ContainerID(of) {
					container(id, &runtimeapi.ContainerFilter{Id: id})
				}
			}
		}
	}
	return parts
}

// listPortions fills a table by several answers in place of the one to request.
func (c *Client) listPortions(ctx context.Context, all *lists, l *list, request proto.Message) error {
	for _, part := range all.portions(request) {
		known := l.known[part.id]
		if known != nil && known.seenIn == l.current { // an earlier portion has shown it; the first state counts
			continue
		}
		err := c.invoke(ctx, "", l, part.request)
		switch {
		case status.Code(err) == codes.NotFound:
		case isTooLarge(err) && known != nil && known.item.sandbox: // large annotations
			l.include(known) // the sandbox exists; if no list has shown it yet, it must not count as gone
		case isTooLarge(err) && part.id == "":
			if err := c.listPortions(ctx, all, l, part.request); err != nil {
				return err
			}
		case err != nil:
			return c.wrapList(l.what+" in portions", err)
		}
	}
	return nil
}

// sandboxIDs returns the ids of all known sandboxes: of the last lists, of this one, and of single-pod
// lists since.
func (l *lists) sandboxIDs() map[string]struct{} {
	ids := maps.Clone(l.seen)
	for id := range l.sandboxes.known {
		ids[id] = struct{}{}
	}
	for _, c := range l.containers.known {
		ids[string(c.item.SandboxID)] = struct{}{}
	}
	delete(ids, "")
	return ids
}

// noteTooLarge notes which list is made in portions, and its largest pods.
func (c *Client) noteTooLarge(l *lists) {
	err := cmp.Or(l.sandboxes.tooLarge, l.containers.tooLarge)
	if err == nil {
		c.degraded.Store(nil)
		return
	}
	err = fmt.Errorf("%w: %w; the largest pods are %s", pleg.ErrListTooLarge, err, l.largest())
	c.degraded.Store(&err)
}

// largest names the pods with the most bytes in the lists, those with a portion that was too large
// first.
func (l *lists) largest() string {
	const most, mebi = 3, 1 << 20
	type size struct{ refused, bytes, annotations int }
	sizes := make(map[*group]size, len(l.joiner.groups))
	for _, g := range l.joiner.groups {
		var s size
		for _, it := range slices.Concat(g.sandboxes, g.containers) {
			s.bytes, s.annotations = s.bytes+it.bytes, s.annotations+it.annotations
			if _, refused := l.refused[it.ID]; refused {
				s.refused++
			}
		}
		sizes[g] = s
	}
	largest := slices.SortedFunc(maps.Keys(sizes), func(a, b *group) int {
		return cmp.Or(sizes[b].refused-sizes[a].refused, sizes[b].bytes-sizes[a].bytes, cmp.Compare(a.uid, b.uid))
	})
	names := make([]string, 0, most)
	for _, g := range largest[:min(most, len(largest))] {
		s, text := sizes[g], "(too large alone)"
		if s.refused == 0 {
			text = fmt.Sprintf("%.1f MiB (annotations %.1f MiB)", float64(s.bytes)/mebi, float64(s.annotations)/mebi)
		}
		names = append(names, fmt.Sprintf("%s/%s %s", g.pod.Namespace, g.pod.Name, text))
	}
	return strings.Join(names, ", ")
}
