package main

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// Each relist finds a new container in a hundredth of the pods, and at least in one.
func TestChange(t *testing.T) {
	for want, n := range map[int]*node{0: {pods: 50}, 2: {pods: 50, churn: true}, 6: {pods: 300, churn: true}} {
		n.containers, n.runtime = 1, simruntime.New(simruntime.Options{})
		for i := range n.pods {
			n.runtime.AddPod(n.pod(i))
		}
		n.change()
		n.change()
		replaced := 0
		for _, pod := range n.runtime.Pods() {
			if len(pod.Containers) == 1 && pod.Containers[0].Attempt == 1 {
				replaced++
			}
		}
		if replaced != want {
			t.Errorf("two changes of %d pods replaced %d containers, want %d", n.pods, replaced, want)
		}
	}
}
