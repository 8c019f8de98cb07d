package doctor

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// width is the number of status calls in flight: containerd on two cores serves
	// no more, and more calls would add to its load.
	width = 4
	// hungAfter is the age at which a call no longer counts against width.
	hungAfter = 500 * time.Millisecond
)

// madeCall is a call with its result. Only a status call has an ID.
type madeCall struct {
	ItemCall
	err   error
	bytes int // of the answer
}

// hangs reports whether a call did not return in time.
func (c *madeCall) hangs() bool { return status.Code(c.err) == codes.DeadlineExceeded }

// fails reports whether a call returned an error. What was removed since the list is not
// found.
func (c *madeCall) fails() bool {
	return c.err != nil && !c.hangs() && status.Code(c.err) != codes.NotFound
}

// call is the interceptor of all calls. It makes one within Options.CallTimeout and records its
// result, unless the examination ends first. A malformed answer is recorded as an error.
func (e *examination) call(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	bounded, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	item, _ := ctx.Value(itemKey{}).(ItemCall)
	c := madeCall{ItemCall: item}
	c.Method, c.began = path.Base(method), time.Now()
	err := invoke(bounded, method, request, reply, conn, opts...)
	c.Seconds, c.err = time.Since(c.began).Seconds(), err
	deadline, ends := ctx.Deadline() // ctx itself may end a little later
	if err != nil && (ctx.Err() != nil || ends && !time.Now().Before(deadline)) {
		return err
	}
	if r, ok := request.(*runtimeapi.ContainerStatusRequest); ok && r.GetVerbose() {
		return err // it is the second call for this container
	}
	if err == nil {
		c.bytes, c.err = sizeOf(reply), malformed(c.ID, reply)
	}
	if c.err != nil {
		c.Error = status.Convert(c.err).Message()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
	return err
}

// malformed returns an error if an answer is about an object with another id.
func malformed(id string, reply any) error {
	got := id
	switch r := reply.(type) {
	case *runtimeapi.PodSandboxStatusResponse:
		got = r.GetStatus().GetId()
	case *runtimeapi.ContainerStatusResponse:
		got = r.GetStatus().GetId()
	}
	switch got {
	case id:
		return nil
	case "":
		return status.Error(codes.Unknown, "malformed answer: it has no status")
	}
	return status.Errorf(codes.Unknown, "malformed answer: it is the status of %s", got)
}

// itemKey is the key of an [ItemCall] in the context of a status call.
type itemKey struct{}

// inspect asks for the status of everything until ctx ends.
func (e *examination) inspect(ctx context.Context, items []item) {
	slots := make(chan struct{}, width)
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, i := range items {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		calls.Go(func() {
			release := sync.OnceFunc(func() { <-slots })
			defer release()
			defer time.AfterFunc(hungAfter, release).Stop()
			e.askStatus(ctx, i.ItemCall)
		})
	}
}

// askStatus asks for one status. It counts a sandbox without an address.
func (e *examination) askStatus(ctx context.Context, i ItemCall) {
	ctx = context.WithValue(ctx, itemKey{}, i)
	if i.Method == "ContainerStatus" {
		_, _ = e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: i.ID}) // recorded
		return
	}
	answer, _ := e.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: i.ID})
	s := answer.GetStatus()
	hostNetwork := s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if s.GetId() == i.ID && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !hostNetwork && s.GetNetwork().GetIp() == "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report.Counts.WithoutIP++
	}
}
