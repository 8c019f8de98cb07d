package podsapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/podsapi"
)

// kubelet serves what a test sends. A nil event ends the watch as the kubelet does with a
// client that is too slow.
type kubelet struct {
	podsv1alpha1.UnimplementedPodsServer
	events  chan *podsv1alpha1.WatchPodsEvent
	pods    map[string]*corev1.Pod // for GetPod
	asked   int
	watches int
}

func (k *kubelet) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	k.watches++
	for {
		select {
		case m := <-k.events:
			if m == nil {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (k *kubelet) GetPod(_ context.Context, r *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	k.asked++
	pod := k.pods[r.GetPodUID()]
	if pod == nil {
		return nil, status.Error(codes.NotFound, "no such pod")
	}
	text, err := pod.Marshal()
	return &podsv1alpha1.GetPodResponse{Pod: text}, err
}

func (k *kubelet) send(t *testing.T, kind podsv1alpha1.EventType, pod *corev1.Pod) {
	t.Helper()
	m := &podsv1alpha1.WatchPodsEvent{Type: kind}
	if pod != nil {
		var err error
		if m.Pod, err = pod.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	k.events <- m
	synctest.Wait()
}

func pod(uid, owner string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: "name-" + uid, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner}}},
		Status:     corev1.PodStatus{QOSClass: corev1.PodQOSBurstable, Phase: corev1.PodRunning},
	}
}

func inBubble(t *testing.T, test func(t *testing.T, k *kubelet, pods *podsapi.Pods)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{events: make(chan *podsv1alpha1.WatchPodsEvent), pods: make(map[string]*corev1.Pod)}
		listener, server := bufconn.Listen(1<<20), grpc.NewServer()
		podsv1alpha1.RegisterPodsServer(server, k)
		ended := make(chan error, 2)
		go func() { ended <- server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		pods := podsapi.New(conn)
		go func() { ended <- pods.Run(ctx) }()
		synctest.Wait()
		test(t, k, pods)
		stop()
		_ = conn.Close()
		server.Stop()
		_, _ = <-ended, <-ended
	})
}

// owner returns the owner of a pod, or what kind of error came.
func owner(t *testing.T, pods *podsapi.Pods, uid pleg.PodUID) string {
	t.Helper()
	got, err := pods.Pod(t.Context(), uid)
	switch {
	case errors.Is(err, pleg.ErrUnknownPod):
		return "unknown"
	case err != nil:
		return err.Error()
	case got.Status.QOSClass != corev1.PodQOSBurstable || got.Status.Phase != "":
		return "another status"
	}
	return got.OwnerReferences[0].Name
}

// The first watch brings pods, and so does each later watch; a pod that went between two watches is
// gone.
func TestWatchedPods(t *testing.T) {
	const added, modified, deleted, complete = podsv1alpha1.EventType_ADDED, podsv1alpha1.EventType_MODIFIED, podsv1alpha1.EventType_DELETED, podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE
	inBubble(t, func(t *testing.T, k *kubelet, pods *podsapi.Pods) {
		want := func(when, a, b string) {
			t.Helper()
			if got := [2]string{owner(t, pods, "a"), owner(t, pods, "b")}; got != [2]string{a, b} {
				t.Errorf("%s: the owners are %v, want %s and %s", when, got, a, b)
			}
		}
		k.send(t, added, pod("a", "first"))
		k.send(t, complete, nil)
		want("initially", "first", "unknown")
		k.send(t, added, pod("b", "first"))
		k.send(t, modified, pod("a", "second"))
		want("after two events", "second", "first")
		k.send(t, deleted, pod("b", ""))
		want("deleted", "second", "unknown")
		k.events <- nil
		want("while the watch is broken", "second", "unknown")
		k.send(t, added, pod("b", "third")) // once it is begun again
		want("while the initial pods come", "second", "unknown")
		k.send(t, complete, nil)
		if want("after a new watch", "unknown", "third"); k.watches != 2 {
			t.Errorf("%d watches, want 2", k.watches)
		}
	})
}

// A pod that no watch has brought is asked for, and an unknown pod once a second.
func TestPodIsAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kubelet, pods *podsapi.Pods) {
		for range 100 {
			if got := owner(t, pods, "new"); got != "unknown" {
				t.Fatalf("got %s", got)
			}
		}
		if k.asked != 1 {
			t.Errorf("the kubelet was asked %d times, want once", k.asked)
		}
		k.pods["new"] = pod("new", "set")
		time.Sleep(time.Second)
		if got := owner(t, pods, "new"); got != "set" {
			t.Errorf("a second later: got %s", got)
		}
	})
}

// However many pods are unknown, little is remembered of them.
func TestUnknownPodsAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kubelet, pods *podsapi.Pods) {
		const most = 1024
		for n := range most + 1 {
			owner(t, pods, pleg.PodUID(fmt.Sprint(n)))
		}
		if owner(t, pods, "0"); k.asked != most+2 {
			t.Errorf("the kubelet was asked %d times, want once for each and again for the first", k.asked)
		}
	})
}

// A watch that lasted is begun again at once, however many broke before.
func TestWatchIsBegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kubelet, _ *podsapi.Pods) {
		for n := range 10 {
			time.Sleep(time.Minute)
			k.events <- nil
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if k.watches != n+2 {
				t.Fatalf("%d watches after %d have broken, want one more", k.watches, n+1)
			}
		}
	})
}
