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

// Title: GenericPLEG never sends the events of a pod again that found its channel full
//
// What happened: reconcilePodRecord updates the pod's record, then sends its events without
// blocking. If the channel is full, it discards them. No later relist finds the change, because
// the record has it already. A relist sends all its events before the sync loop has time to
// read, and the channel has room for 1,000: if 1,000 pods of two containers and a sandbox
// start or end in the same second, 666 pods have no event. Each waits for its next change or its
// periodic sync (a minute). kubelet_pleg_discard_events counts them.
//
// Expected: a pod with discarded events gets a PodSync once there is room. To block instead is
// no solution: it was a deadlock (#72482).
//
// How to reproduce: copy this file to pkg/kubelet/pleg without its first line, and run the
// test. It uses a channel of 1 and 3 pods.
//
// Version: v1.37.1. Related: #104117 saw it on nodes with hundreds of pods; the pull request
// #136408 was closed.
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
