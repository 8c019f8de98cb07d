//go:build bugs

package pleg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
)

// Title: GenericPLEG loses a pod's events for good if its channel is full
//
// What happens: reconcilePodRecord updates the pod's record, then sends its events without
// blocking. If the channel is full, the events are discarded, and no later relist finds the
// change, because the record has it already. The channel has room for 1,000 events. If 1,000
// pods of two containers and a sandbox start while the sync loop is busy, two thirds of the
// events are lost, and 666 pods have none: they wait for their next change or periodic sync.
//
// Expected: a pod with discarded events gets a PodSync once there is room. Related: the
// pull request #136408 was closed.
func TestFullChannelLosesNoPod(t *testing.T) {
	const pods, room = 3, 1
	runtime := &containertest.FakeRuntime{}
	for i := range pods {
		id := kubecontainer.ContainerID{Type: "fake", ID: fmt.Sprint("container-", i)}
		runtime.AllPodList = append(runtime.AllPodList, &containertest.FakePod{Pod: &kubecontainer.Pod{
			ID: types.UID(fmt.Sprint("pod-", i)), Containers: []*kubecontainer.Container{{ID: id, State: kubecontainer.ContainerStateRunning}},
		}})
	}
	events := make(chan *pleg.PodLifecycleEvent, room)
	durations := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	generic := pleg.NewGenericPLEG(runtime, events, durations, kubecontainer.NewCache(), clock.RealClock{}).(*pleg.GenericPLEG)
	ctx := klog.NewContext(t.Context(), logr.Discard())
	told := make(map[types.UID]bool)
	for range 10 { // relists; the kubelet reads after each
		generic.Relist(ctx)
		for len(events) > 0 {
			told[(<-events).ID] = true
		}
	}
	if len(told) != pods {
		t.Errorf("after 10 relists the kubelet knows of %d pods, want %d", len(told), pods)
	}
}
