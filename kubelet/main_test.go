package kubelet_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func TestMain(m *testing.M) {
	// The kubelet's metrics need registration before they count.
	metrics.Register()
	goleak.VerifyTestMain(m,
		// The kubelet's runtime manager, which the benchmark uses, cannot be stopped.
		goleak.IgnoreAnyFunction("k8s.io/kubernetes/pkg/kubelet/images.(*serialImagePuller).processImagePullRequests"),
	)
}
