package cri_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// Portions may overlap; what is twice in one answer is malformed.
func TestJoin(t *testing.T) {
	encode := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		must(t, err)
		return raw
	}
	web := encode(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
		Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "shop", Name: "web-0"},
	}}})
	containers := encode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "c1", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "nginx"}},
		{Id: "c1", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "nginx"}},
		{Id: "c2", PodSandboxId: "gone", Metadata: &runtimeapi.ContainerMetadata{Name: "db"}},
		{Id: "c3", PodSandboxId: "s"},
	}})
	pods, skipped, err := cri.Join([][]byte{web, web}, [][]byte{containers})
	if err != nil || len(pods) != 1 || pods[0].Name != "web-0" || len(pods[0].Sandboxes) != 1 || len(pods[0].Containers) != 1 {
		t.Fatalf("pods %+v, %v, want web-0 with one sandbox and one container", pods, err)
	}
	want := []cri.Skipped{
		{ID: "c1", SandboxID: "s", Name: "nginx", Reason: "duplicate_id"},
		{ID: "c3", SandboxID: "s", Reason: "no_metadata"},
		{ID: "c2", SandboxID: "gone", Name: "db", Reason: "no_pod"},
	}
	if !slices.Equal(skipped, want) {
		t.Errorf("skipped %+v, want %+v", skipped, want)
	}
	if _, _, err := cri.Join([][]byte{{0xff}}, nil); err == nil {
		t.Error("no error for what is no answer")
	}
}
