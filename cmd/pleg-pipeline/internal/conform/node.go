package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// Namespace is the Kubernetes namespace of all pods that this package runs.
const Namespace = "pleg-conform"

// runLabel marks the pods of one run. Its value begins with the process id.
const runLabel = "pleg-pipeline.conform/run"

// largeAnswer is how much this client reads, in bytes. It must not be the limit.
const largeAnswer = 256 << 20

// node is a runtime with the pods of one run.
type node struct {
	opts    Options
	run     string
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	program string // the folder with this program

	events   error     // how an event stream ends at once; nil if it stays open
	scenario *scenario // several promises are judged by it; nil before the first

	mu   sync.Mutex
	pods map[string]*pod // by the uids of pods, and the ids of their sandboxes and containers
}

func newNode(o Options) (*node, error) {
	program, err := newProgram()
	if err != nil {
		return nil, err
	}
	client, err := dial(o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(program))
	}
	return &node{
		opts: o, run: fmt.Sprintf("%d-%s", os.Getpid(), rand.Text()), client: client, program: program,
		runtime: runtimeapi.NewRuntimeServiceClient(client.Conn()), pods: make(map[string]*pod),
	}, nil
}

// smallWindow is how many bytes a runtime may send before this client reads them, by
// default in HTTP/2.
const smallWindow = 64 << 10

// dial returns a client with a connection of its own. A runtime notices soon whether
// it reads. Each call ends after the call timeout, and its error names it.
func dial(o Options) (*cri.Client, error) {
	bounded := func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
		defer cancel()
		if err := invoke(ctx, method, request, reply, conn, opts...); err != nil {
			return fmt.Errorf("%s: %w", path.Base(method), err)
		}
		return nil
	}
	return cri.New(o.Endpoint, cri.Options{MaxRecvBytes: largeAnswer, DialOptions: []grpc.DialOption{
		grpc.WithStaticStreamWindowSize(smallWindow), grpc.WithStaticConnWindowSize(smallWindow), grpc.WithChainUnaryInterceptor(bounded),
	}})
}

// cleanupTimeout bounds the removal of the pods at the end.
const cleanupTimeout = 2 * time.Minute

// close removes the pods, also after ctx has ended, and closes the connection.
func (n *node) close(ctx context.Context) error {
	return errors.Join(n.removePods(context.WithoutCancel(ctx)), n.client.Close(), os.RemoveAll(n.program))
}

// removePods removes every pod of this run, and those of runs that were killed. It
// tries again for a while, because a runtime may be busy.
func (n *node) removePods(ctx context.Context) (err error) {
	until(ctx, cleanupTimeout, 200*time.Millisecond, func() bool {
		var resp *runtimeapi.ListPodSandboxResponse
		resp, err = n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.namespace": Namespace}},
		})
		for _, s := range resp.GetItems() {
			if run := s.GetLabels()[runLabel]; run == n.run || !runs(run) {
				err = errors.Join(err, n.removeSandbox(ctx, s.GetId()))
			}
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("remove the pods of namespace %s: %w", Namespace, err)
	}
	return nil
}

// runs reports whether the process of another run is alive.
func runs(run string) bool {
	text, _, _ := strings.Cut(run, "-")
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && syscall.Kill(pid, 0) == nil
}

func (n *node) removeSandbox(ctx context.Context, id string) error {
	_, stopErr := n.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	_, err := n.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return errors.Join(stopErr, err)
}

func (n *node) checkImage(ctx context.Context) error {
	images := runtimeapi.NewImageServiceClient(n.client.Conn())
	resp, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: n.opts.Image}})
	if err != nil {
		return err
	}
	if resp.GetImage() == nil {
		return fmt.Errorf("the runtime has no image %s: pull it first", n.opts.Image)
	}
	return nil
}
