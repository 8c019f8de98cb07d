package kubelet_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func TestMain(m *testing.M) {
	// The kubelet's metrics count nothing before they are registered.
	metrics.Register()
	goleak.VerifyTestMain(m,
		// The runtime manager that the benchmark takes from the kubelet has no end:
		// it lives as long as the kubelet.
		goleak.IgnoreAnyFunction("k8s.io/kubernetes/pkg/kubelet/images.(*serialImagePuller).processImagePullRequests"),
	)
}
