package doctor

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// madeCall is a call with its result.
type madeCall struct {
	method string
	took   time.Duration
	err    error
}

// calls makes calls to a runtime and measures each.
type calls struct {
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	name    string // of the runtime
	timeout time.Duration

	mu   sync.Mutex // for status calls, which are made at the same time
	made []madeCall
}

// connect returns an error if the runtime does not answer.
func connect(ctx context.Context, o Options, timeout time.Duration) (*calls, error) {
	c := &calls{timeout: timeout}
	var err error
	c.client, err = cri.New(o.Endpoint, cri.Options{ConnectTimeout: timeout, DialOptions: append(o.DialOptions, grpc.WithChainUnaryInterceptor(c.intercept))})
	if err != nil {
		return nil, err
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.client.Conn())
	version, err := c.client.Check(ctx)
	if err != nil {
		return nil, errors.Join(err, c.client.Close())
	}
	c.name, c.made = view.Printable(version.RuntimeName+" "+version.RuntimeVersion), nil
	return c, nil
}

// intercept makes a call within the timeout and records its result, unless ctx ends first.
func (c *calls) intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	began := time.Now()
	err := invoke(bounded, method, request, reply, conn, opts...)
	if ctx.Err() != nil || status.Code(err) == codes.NotFound { // the item was removed since the list
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, madeCall{path.Base(method), time.Since(began), err})
	return err
}

// inspect asks for the statuses of a pod, one after the other, as a kubelet does.
func (c *calls) inspect(ctx context.Context, sandboxes, containers []string) {
	for _, id := range sandboxes {
		_, _ = c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}) // recorded
	}
	for _, id := range containers {
		_, _ = c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	}
}
