package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

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

// node runs pods on the runtime and removes them.
type node struct {
	opts    Options
	run     string
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	program program
	pods    atomic.Int64
}

func newNode(o Options) (*node, error) {
	program, err := newProgram()
	if err != nil {
		return nil, err
	}
	client, err := dial(o)
	if err != nil {
		return nil, errors.Join(err, program.remove())
	}
	return &node{
		opts: o, run: fmt.Sprintf("%d-%s", os.Getpid(), rand.Text()), client: client, program: program,
		runtime: runtimeapi.NewRuntimeServiceClient(client.Conn()),
	}, nil
}

// cleanupTimeout bounds the removal of the pods at the end.
const cleanupTimeout = 2 * time.Minute

// close removes the pods, also after ctx has ended, and closes the connections. It returns the pods that are
// left, and err if that is not nil.
func (n *node) close(ctx context.Context, err error) (leftover []string, _ error) {
	leftover = n.removePods(context.WithoutCancel(ctx))
	if len(leftover) > 0 && err == nil {
		err = fmt.Errorf("could not remove %d pods of namespace %s", len(leftover), Namespace)
	}
	return leftover, errors.Join(err, n.client.Close(), n.program.remove())
}

// removePods removes every pod of this run, and those of runs that were killed. It
// tries again for a while, also after ctx has ended, because a runtime may be busy.
func (n *node) removePods(ctx context.Context) (leftover []string) {
	_ = until(ctx, cleanupTimeout, 200*time.Millisecond, func() (bool, error) {
		resp, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.namespace": Namespace}},
		})
		if err != nil {
			return false, nil
		}
		leftover = nil
		for _, s := range resp.GetItems() {
			if run := s.GetLabels()[runLabel]; run != n.run && runs(run) {
				continue
			}
			if err := n.removeSandbox(ctx, s.GetId()); err != nil {
				leftover = append(leftover, s.GetId())
			}
		}
		return len(leftover) == 0, nil
	})
	return leftover
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

// until calls done again and again until it returns true or an error, ctx ends, or the time is
// over.
func until(ctx context.Context, within, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := sleep(ctx, every); err != nil {
			return err
		}
	}
}

// sleep returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
