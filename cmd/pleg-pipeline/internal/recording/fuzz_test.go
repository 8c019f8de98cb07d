package recording_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
)

// FuzzRead reads any input, and plays it if it is a recording.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recording.Read(t.Context(), bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Length < 0 || r.Header.Version != 3 {
			t.Fatalf("read %+v", r)
		}
		synctest.Test(t, func(t *testing.T) { play(t, r) })
	})
}

// play makes every kind of call several times in the course of a recording.
func play(t *testing.T, r *recording.Recording) {
	t.Helper()
	const rounds = 4
	length := min(r.Length, time.Hour)
	dial, _ := serving(t, recording.NewServer(r, 1).Serve)
	client, closeClient := newClient(t, dial)
	defer func() { _ = closeClient() }()
	for range rounds {
		callEverything(t, client)
		time.Sleep(length / rounds)
	}
}

func callEverything(t *testing.T, client runtimeapi.RuntimeServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ids []string
	if list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err == nil {
		for _, s := range list.GetItems() {
			ids = append(ids, s.GetId())
		}
	}
	if list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err == nil {
		for _, c := range list.GetContainers() {
			ids = append(ids, c.GetId())
		}
	}
	filter := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": "u"}}
	_, _ = client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	for _, id := range ids[:min(len(ids), 8)] {
		_, sandboxErr := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		_, containerErr := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		for _, err := range []error{sandboxErr, containerErr} {
			if code := status.Code(err); code == codes.Internal || code == codes.Unimplemented {
				t.Errorf("neither a status nor a recorded error: %v", err)
			}
		}
	}
}
