package recording_test

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
)

// notUTF8 encodes the text "nginx:1" so that it is not UTF-8.
type notUTF8 struct{ encoding.CodecV2 }

func (notUTF8) Marshal(v any) (mem.BufferSlice, error) {
	raw, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(bytes.ReplaceAll(raw, []byte("nginx:1"), []byte("nginx:\xff")))}, err
}

// TestTextThatIsNotUTF8 in one container of a list ends neither the client nor the recording, and a
// replay shows what the node showed: that container is skipped.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sandbox := &runtimeapi.PodSandboxMetadata{Name: "web-0", Uid: "u", Namespace: "shop"}
		answers := map[string]proto.Message{
			"Version": &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "test"},
			"ListPodSandbox": &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
				{Id: "s", Metadata: sandbox},
			}},
			"PodSandboxStatus": &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: sandbox}},
			"ContainerStatus": &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: "d", Metadata: &runtimeapi.ContainerMetadata{Name: "sidecar"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			}},
			"ListContainers": &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
				{Id: "c", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "nginx"}, ImageRef: "nginx:1"},
				{Id: "d", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "sidecar"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			}},
		}
		dial, stop := serving(t, func(ctx context.Context, listener net.Listener) error {
			server := grpc.NewServer(grpc.ForceServerCodecV2(notUTF8{encoding.GetCodecV2("proto")}), grpc.UnknownServiceHandler(
				func(_ any, stream grpc.ServerStream) error {
					name, _ := grpc.MethodFromServerStream(stream)
					if answer := answers[path.Base(name)]; answer != nil {
						return stream.SendMsg(answer)
					}
					return status.Error(codes.Unimplemented, name)
				}))
			defer context.AfterFunc(ctx, server.Stop)()
			return cmp.Or(server.Serve(listener), context.Cause(ctx))
		})
		var out memory
		recorder, written := startRecorder(&out, recording.Options{})
		shown := runPipeline(t, append(dial, recorder.DialOptions()...), pipeline.Options{}, false, func() {
			time.Sleep(5 * time.Second)
			recorder.Stop()
		})
		if err := <-written; err != nil {
			t.Error(err)
		}
		if text := out.String(); !strings.Contains(text, "\"imageRef\":\"nginx:\ufffd\"") {
			t.Errorf("the recording has no such container:\n%s", text)
		}
		if r, err := recording.Read(t.Context(), bytes.NewReader(out.Bytes())); err != nil || r.Cut != "" || r.Length < 4*time.Second {
			t.Errorf("Read = %+v, %v, want a whole recording", r, err)
		}
		_ = stop()
		if len(shown.events["u"]) == 0 {
			t.Error("the node has shown no event")
		}
		replayed(t, out.Bytes(), 1, pipeline.Options{}, 0).requireEqual(t, shown)
	})
}
