package recording_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
)

// FuzzRead reads anything, and plays what could be read from its beginning to
// its end.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recording.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Length < 0 || r.Header.Version != 1 {
			t.Fatalf("read %+v", r)
		}
		synctest.Test(t, func(t *testing.T) { play(t, r) })
	})
}

// play asks for everything several times in the course of a recording.
func play(t *testing.T, r *recording.Recording) {
	t.Helper()
	const looks = 4
	length := min(r.Length, time.Hour)
	server := recording.NewServer(r, 1)
	for range looks {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var ids []string
		if list, err := server.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err == nil {
			for _, s := range list.GetItems() {
				ids = append(ids, s.GetId())
			}
		}
		if list, err := server.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err == nil {
			for _, c := range list.GetContainers() {
				ids = append(ids, c.GetId())
			}
		}
		filter := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": "u"}}
		_, _ = server.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		for _, id := range ids[:min(len(ids), 8)] {
			if answer, err := server.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}); err == nil && answer == nil {
				t.Error("neither a status nor an error")
			}
			if answer, err := server.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil && answer == nil {
				t.Error("neither a status nor an error")
			}
		}
		cancel()
		time.Sleep(length / looks)
	}
}
