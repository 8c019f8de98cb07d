package doctor_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// notUTF8 sends each ? as a byte that is not UTF-8.
type notUTF8 struct{ encoding.CodecV2 }

func (c notUTF8) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes.ReplaceAll(data.Materialize(), []byte("?"), []byte{0xff}))}, nil
}

// TestExamineListedItems has containers with problems beside a container that runs as it should.
// The examination joins and skips as the daemon does.
func TestExamineListedItems(t *testing.T) {
	labels := func(pod string) map[string]string {
		return map[string]string{"io.kubernetes.pod.uid": "u9", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": pod}
	}
	for name, test := range map[string]struct {
		container *runtimeapi.Container
		cause     verdict.Cause // empty for a warning about the network
		want      string        // in the text
	}{
		"an orphan with the labels of its pod": {
			&runtimeapi.Container{Id: "hangs", PodSandboxId: "gone", Metadata: &runtimeapi.ContainerMetadata{Name: "db"}, Labels: labels("cart-0")},
			verdict.HungContainer, "shop/cart-0 hangs for at least 1.0s in ContainerStatus of db",
		},
		"one without metadata": {
			&runtimeapi.Container{Id: "c9", PodSandboxId: "s"},
			verdict.RuntimeFails, "ListContainers has malformed items: container without a name (c9) of shop/web-0 has no metadata",
		},
		"one whose name is not UTF-8": {
			&runtimeapi.Container{Id: "c9", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "d?b"}},
			verdict.RuntimeFails, "ListContainers has malformed items: container d\ufffdb (c9) of shop/web-0 has text that is not UTF-8, so that a kubelet cannot read the list",
		},
		"one of no pod": {
			&runtimeapi.Container{Id: "c9", PodSandboxId: "gone", Metadata: &runtimeapi.ContainerMetadata{Name: "db"}},
			"", "Skipped     container db (c9) is skipped: no_pod",
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			s := stub(&runtimeapi.Container{Id: "c1", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "nginx"}}, test.container)
			r := doctor.Examine(t.Context(), serveStub(t, s, grpc.ForceServerCodecV2(notUTF8{encoding.GetCodecV2(proto.Name)})))
			if test.cause != "" {
				check(t, r, test.cause, verdict.Problem)
			} else if !r.Healthy() {
				t.Errorf("findings %+v, want no problem", r.Findings)
			}
			var text strings.Builder
			kit.Must(t, r.Print(&text, doctor.TextOptions{}))
			if !strings.Contains(text.String(), test.want) {
				t.Errorf("text without %q:\n%s", test.want, text.String())
			}
		})
	}
}

// A pod that fails to start leaves a dead sandbox each time (containerd#10865).
func TestExamineDeadSandboxes(t *testing.T) {
	kit.Bubble(t, "3000", func(t *testing.T) {
		s := stub()
		for n := range 3000 {
			id := fmt.Sprint("dead", n)
			const state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			s.Sandboxes = append(s.Sandboxes, &runtimeapi.PodSandbox{Id: id, State: state, Metadata: s.Sandboxes[0].Metadata})
			s.SandboxStatuses[id] = &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: id, State: state}}
		}
		r := doctor.Examine(t.Context(), serveStub(t, s))
		check(t, r, verdict.DeadContainers, verdict.Warning, "3000 of 3001 sandboxes are not ready", "most in shop/web-0 3000")
	})
}
