// Package podsapi has the pods as the kubelet of this node knows them: what the runtime does not
// know, such as owner references, the spec and the QoS class. The kubelet serves its PodsAPI on
// a unix socket that only root may use, by default from Kubernetes 1.37 on.
//
//	conn, err := grpc.NewClient("unix://"+podsapi.DefaultSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
//	...
//	pods := podsapi.New(conn)
//	go pods.Run(ctx)
//	for ev, err := range pipe.Watch(ctx, options) {
//		if err != nil || ev.PodUID == "" { // a mark has no pod
//			continue
//		}
//		pod, err := pods.Pod(ctx, ev.PodUID)
//		...
//	}
//
// It is a module of its own, so that others need not have the API of Kubernetes.
package podsapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// DefaultSocket is where a kubelet with the default --root-dir listens.
	DefaultSocket = "/var/lib/kubelet/pods-api/pods-api.sock"

	// minBackoff and maxBackoff are the times between two watches.
	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second
	// askAgain is the time before the kubelet is asked again for a pod that it did not have. It
	// answers 100 requests a second, of all its clients.
	askAgain = time.Second
	// maxAbsent bounds the pods that are remembered as absent.
	maxAbsent = 1024
)

// Pods are the pods of a kubelet. Its methods are safe for concurrent use. Create it with [New].
type Pods struct {
	client podsv1alpha1.PodsClient

	mu     sync.Mutex
	known  map[pleg.PodUID]*corev1.Pod
	absent map[pleg.PodUID]time.Time
}

// New returns the pods of the kubelet at the other end of a connection, which the caller closes.
func New(conn grpc.ClientConnInterface) *Pods {
	return &Pods{
		client: podsv1alpha1.NewPodsClient(conn),
		known:  make(map[pleg.PodUID]*corev1.Pod), absent: make(map[pleg.PodUID]time.Time),
	}
}

// Run watches the pods until ctx ends, and then returns nil. If a watch fails or ends, Run begins
// another after 0.1 to 10 seconds. Run is called once.
func (p *Pods) Run(ctx context.Context) error {
	retries := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		began := time.Now()
		_ = p.watch(ctx) // no error is final: a kubelet may be upgraded
		if time.Since(began) > maxBackoff {
			retries.Reset()
		}
		if backoff.Wait(ctx, retries.Next()) != nil {
			return nil
		}
	}
}

func (p *Pods) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		return err
	}
	first := make(map[pleg.PodUID]*corev1.Pod) // nil once they are complete
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetType() == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE {
			p.mu.Lock()
			p.known = first
			p.mu.Unlock()
			first = nil
			continue
		}
		pod, err := decode(m.GetPod())
		if err != nil {
			return err
		}
		uid := pleg.PodUID(pod.UID)
		switch {
		case first != nil:
			first[uid] = pod
		case m.GetType() == podsv1alpha1.EventType_DELETED:
			p.set(uid, nil)
		default:
			p.set(uid, pod)
		}
	}
}

// decode returns a pod with what does not change all the time: of its status only the QoS
// class.
func decode(text []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("decode a pod of the kubelet: %w", err)
	}
	pod.ManagedFields = nil
	pod.Status = corev1.PodStatus{QOSClass: pod.Status.QOSClass}
	return pod, nil
}

// set replaces a pod; nil means that the kubelet does not have it.
func (p *Pods) set(uid pleg.PodUID, pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod != nil {
		p.known[uid] = pod
		return
	}
	delete(p.known, uid)
	if len(p.absent) >= maxAbsent {
		clear(p.absent)
	}
	p.absent[uid] = time.Now()
}

// Pod returns a pod without its managed fields and with the QoS class as its only status. The pod
// is read-only. If the watch of [Pods.Run] has not shown the pod, or Run is not called, Pod asks
// the kubelet and blocks until it answers or ctx ends.
//
// If the kubelet has no such pod, the error wraps [pleg.ErrUnknownPod], and Pod does not ask again
// for a second. Otherwise the error wraps the error of the call.
func (p *Pods) Pod(ctx context.Context, uid pleg.PodUID) (*corev1.Pod, error) {
	p.mu.Lock()
	pod, asked := p.known[uid], p.absent[uid]
	p.mu.Unlock()
	if pod != nil {
		return pod, nil
	}
	if time.Since(asked) < askAgain {
		return nil, fmt.Errorf("kubelet: pod %s: %w", uid, pleg.ErrUnknownPod)
	}
	m, err := p.client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: string(uid)})
	switch {
	case status.Code(err) == codes.NotFound:
		p.set(uid, nil)
		return nil, fmt.Errorf("kubelet: pod %s: %w", uid, pleg.ErrUnknownPod)
	case err != nil:
		return nil, fmt.Errorf("kubelet: pod %s: %w", uid, err)
	}
	return decode(m.GetPod())
}
