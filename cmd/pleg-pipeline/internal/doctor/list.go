package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// item is a sandbox or container in a list, and the call for its status.
type item struct {
	ItemCall
	runs, exited bool
	details
}

// details are what the lists have of an item and cri does not keep.
type details struct {
	bytes       int
	annotations map[string]string
	plain       bool // its runtime handler is one of plainHandlers
}

// list makes both list calls at once, as a relist does. If a list is too large for one answer, it
// lists each state. It returns what is in the lists, what runs first.
func (e *examination) list(ctx context.Context) []item {
	var sandboxes, containers []*listAnswer
	var both sync.WaitGroup
	both.Go(func() {
		sandboxes = inPortions(runtimeapi.PodSandboxState_name, func(state *int32) (*listAnswer, error) {
			request := &runtimeapi.ListPodSandboxRequest{}
			if state != nil {
				request.Filter = &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(*state)}}
			}
			return e.invoke(ctx, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, request, &runtimeapi.ListPodSandboxResponse{})
		})
	})
	both.Go(func() {
		containers = inPortions(runtimeapi.ContainerState_name, func(state *int32) (*listAnswer, error) {
			request := &runtimeapi.ListContainersRequest{}
			if state != nil {
				request.Filter = &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(*state)}}
			}
			return e.invoke(ctx, runtimeapi.RuntimeService_ListContainers_FullMethodName, request, &runtimeapi.ListContainersResponse{})
		})
	})
	both.Wait()
	pods, skipped, _ := cri.Join(encoded(sandboxes), encoded(containers)) // invoke has decoded them
	all := items(pods, detailsOf(sandboxes, containers))
	e.report.Skipped = nil
	for _, s := range skipped {
		e.report.Skipped = append(e.report.Skipped, newSkipped(s, all))
	}
	return all
}

// inPortions makes a list call, and if the list is too large, one call for each state. It returns
// the answers.
func inPortions(states map[int32]string, list func(state *int32) (*listAnswer, error)) (answers []*listAnswer) {
	whole, err := list(nil)
	if err == nil {
		return []*listAnswer{whole}
	}
	if status.Code(err) == codes.ResourceExhausted {
		for state := range states {
			if part, err := list(&state); err == nil { // an error is recorded
				answers = append(answers, part)
			}
		}
	}
	return answers
}

// listAnswer is an answer as the runtime sent it, and what it says. Text in it that is not UTF-8 is
// replaced.
type listAnswer struct {
	raw     []byte
	message proto.Message
}

func encoded(answers []*listAnswer) [][]byte {
	raw := make([][]byte, len(answers))
	for n, a := range answers {
		raw[n] = a.raw
	}
	return raw
}

func sizeOf(reply any) int {
	if a, ok := reply.(*listAnswer); ok {
		return len(a.raw)
	}
	return proto.Size(reply.(proto.Message))
}

func (e *examination) invoke(ctx context.Context, method string, request, answer proto.Message) (*listAnswer, error) {
	a := &listAnswer{message: answer}
	return a, e.client.Conn().Invoke(ctx, method, request, a, grpc.StaticMethod(), grpc.ForceCodecV2(listCodec{encoding.GetCodecV2(grpcproto.Name)}))
}

// listCodec decodes a [listAnswer].
type listCodec struct{ encoding.CodecV2 }

// Name is empty so that the calls have the content type of all others.
func (listCodec) Name() string { return "" }

// Unmarshal keeps the bytes.
func (listCodec) Unmarshal(data mem.BufferSlice, v any) error {
	a := v.(*listAnswer)
	a.raw = data.Materialize()
	_, err := lenient.Unmarshal(a.raw, a.message)
	return err
}

// detailsOf returns the details of all items.
func detailsOf(sandboxes, containers []*listAnswer) map[pleg.ContainerID]details {
	all := make(map[pleg.ContainerID]details)
	for _, a := range sandboxes {
		for _, s := range a.message.(*runtimeapi.ListPodSandboxResponse).GetItems() {
			all[pleg.ContainerID(s.GetId())] = details{proto.Size(s), s.GetAnnotations(), plainHandlers[s.GetRuntimeHandler()]}
		}
	}
	for _, a := range containers {
		for _, c := range a.message.(*runtimeapi.ListContainersResponse).GetContainers() {
			all[pleg.ContainerID(c.GetId())] = details{proto.Size(c), c.GetAnnotations(), all[pleg.ContainerID(c.GetPodSandboxId())].plain}
		}
	}
	return all
}

// items returns the sandboxes and containers of pods, running ones first.
func items(pods []*pleg.Pod, of map[pleg.ContainerID]details) (all []item) {
	slices.SortFunc(pods, func(a, b *pleg.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, p := range pods {
		add := func(method, container string, c *pleg.Container) {
			all = append(all, item{
				ItemCall: ItemCall{Method: method, Pod: nameOf(p), PodUID: string(p.UID), Container: container, ID: string(c.ID)},
				runs:     c.State == pleg.StateRunning, exited: c.State == pleg.StateExited, details: of[c.ID],
			})
		}
		for _, s := range p.Sandboxes {
			add("PodSandboxStatus", "", s)
		}
		for _, c := range p.Containers {
			add("ContainerStatus", c.Name, c)
		}
	}
	slices.SortStableFunc(all, func(a, b item) int { return cmp.Compare(order(a), order(b)) })
	return all
}

func nameOf(p *pleg.Pod) string {
	if p.Name == "" {
		return string(p.UID)
	}
	return p.Namespace + "/" + p.Name
}

// order is 0 for what runs, and 1 for the rest.
func order(i item) int {
	if i.runs {
		return 0
	}
	return 1
}
