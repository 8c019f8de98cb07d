package recording

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzRead reads any input, and asks for everything several times if it is a recording.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(t.Context(), bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Length < 0 || r.Header.Version != formatVersion {
			t.Fatalf("read %+v", r)
		}
		synctest.Test(t, func(t *testing.T) {
			const rounds = 4
			s := NewServer(r)
			for range rounds {
				askForEverything(t, s)
				time.Sleep(min(r.Length, time.Hour) / rounds)
			}
		})
	})
}

func askForEverything(t *testing.T, s *Server) {
	t.Helper()
	ask := func(method string, request proto.Message) (items []proto.Message) {
		answer := s.choose(method, request)
		if answer == nil {
			return nil
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_ = s.play(ended, answer)
		if answer.reply == nil && answer.err == nil && !answer.pending {
			t.Errorf("%s of %v has neither an answer nor an error", method, request)
		}
		if _, isList := kinds[method]; !isList || answer.reply == nil {
			return nil
		}
		for list, i := itemsOf(answer.reply), 0; i < list.Len(); i++ {
			items = append(items, list.Get(i).Message().Interface())
		}
		return items
	}
	for _, sandbox := range ask(listSandboxes, &cri.ListPodSandboxRequest{}) {
		ask("PodSandboxStatus", &cri.PodSandboxStatusRequest{PodSandboxId: sandbox.(*cri.PodSandbox).GetId()})
	}
	for _, container := range ask(listContainers, &cri.ListContainersRequest{}) {
		ask(containerStatus, &cri.ContainerStatusRequest{ContainerId: container.(*cri.Container).GetId()})
	}
	of := map[string]string{labelPodUID: "u"}
	ask(listContainers, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: of}})
}
