package cli_test

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string][]simruntime.Fault{
		"ContainerStatus/hang@0s": {{RPC: "ContainerStatus", Hang: true}},
		"ListContainers/error@10s-1m": {
			{RPC: "ListContainers", Code: codes.Internal, From: 10 * time.Second, Until: time.Minute},
			{RPC: "StreamContainers", Code: codes.Internal, From: 10 * time.Second, Until: time.Minute},
		},
		"ListPodSandbox/malform@1s": {
			{RPC: "ListPodSandbox", Malform: simruntime.NilMetadata, From: time.Second},
			{RPC: "StreamPodSandboxes", Malform: simruntime.NilMetadata, From: time.Second},
		},
		"PodSandboxStatus/slow@0s-500ms":    {{RPC: "PodSandboxStatus", Latency: simruntime.Latency{P50: 2 * time.Second}, Until: 500 * time.Millisecond}},
		"ContainerStatus/malform/random@0s": {{RPC: "ContainerStatus", Malform: simruntime.NilStatus, Probability: 0.5}},
		"GetContainerEvents/hang/once@0s":   {{RPC: "GetContainerEvents", Hang: true, Times: 1}},
	} {
		for i := range want {
			want[i].PodUID = "u1"
		}
		if got, err := cli.ParseFault(text, "u1"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "hang@0s", "ContainerStatus/hang", "Nothing/hang@0s", "Version/malform@0s", "ContainerStatus/hang@soon",
		"ContainerStatus/hang/often@0s", "ContainerStatus/hang/once/x@0s",
		"ContainerStatus/hang@-1s", "ContainerStatus/hang@5s-5s", "ContainerStatus/hang@5s-x",
	} {
		if faults, err := cli.ParseFault(text, ""); err == nil {
			t.Errorf("%q is parsed as %+v, want an error", text, faults)
		}
	}
}
