package simruntime

import (
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Profile is how long each RPC takes, by its name in the CRI ("ListContainers").
// An RPC that is not in it takes no time.
type Profile map[string]time.Duration

// NodeProfile returns the latencies of a busy node: ContainerStatus 12 ms,
// PodSandboxStatus 5 ms, lists of containers 30 ms, of sandboxes 18 ms.
func NodeProfile() Profile {
	return Profile{
		"ContainerStatus":  12 * time.Millisecond,
		"PodSandboxStatus": 5 * time.Millisecond,
		"ListContainers":   30 * time.Millisecond,
		"ListPodSandbox":   18 * time.Millisecond,
	}
}

func (p Profile) validate() error {
	for rpc := range p {
		if !rpcNames[rpc] {
			return fmt.Errorf("no RPC %q in the CRI", rpc)
		}
	}
	return nil
}

// rpcNames are the RPCs of CRI v1, of both services.
var rpcNames = func() map[string]bool {
	names := map[string]bool{}
	for _, m := range append(slices.Clone(cri.RuntimeService_ServiceDesc.Methods), cri.ImageService_ServiceDesc.Methods...) {
		names[m.MethodName] = true
	}
	for _, m := range append(slices.Clone(cri.RuntimeService_ServiceDesc.Streams), cri.ImageService_ServiceDesc.Streams...) {
		names[m.StreamName] = true
	}
	return names
}()
