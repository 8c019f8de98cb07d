//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pleglib "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/podsapi"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each pod of which the pipeline reports an event is found at a real kubelet, by the same UID.
func TestPodsAPI(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, bin := startLab(ctx, t)
	const pods = 4
	k := newKubelet(t, bin, "stock", pods)
	k.start(l.Endpoint(), l.CgroupParent())
	conn, err := grpc.NewClient("unix://"+k.path("root/pods-api/pods-api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	runtime, err := cri.New(l.Endpoint(), cri.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { _ = runtime.Close() })
	pipe, err := pleglib.New(pleglib.Options{Runtime: runtime})
	kit.Must(t, err)
	of := podsapi.New(conn)
	ended := make(chan error, 2)
	running, end := context.WithCancel(ctx)
	go func() { ended <- pipe.Run(running) }()
	go func() { ended <- of.Run(running) }()
	t.Cleanup(func() { end(); _, _ = <-ended, <-ended })
	seen := make(map[pleg.PodUID]bool)
	for ev, err := range pipe.Watch(running, pleg.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerStarted}, OmitSandboxes: true}}) {
		kit.Must(t, err)
		pod, err := of.Pod(ctx, ev.PodUID)
		if errors.Is(err, pleg.ErrUnknownPod) {
			t.Errorf("pod %s: %v", ev.PodName, err)
			break
		}
		kit.Must(t, err)
		if pod.Name != ev.PodName || pod.Namespace != ev.PodNamespace || pod.Status.QOSClass != "BestEffort" || !strings.HasPrefix(pod.Spec.Containers[0].Image, "localhost/") {
			t.Errorf("event %+v, pod %+v", ev, pod)
		}
		if seen[ev.PodUID] = true; len(seen) == pods {
			break
		}
	}
}
