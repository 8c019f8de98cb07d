package simruntime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestClientStopsAndRemoves(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	client := overSocket(t, rt)
	ctx := t.Context()
	if version, err := client.Version(ctx, &cri.VersionRequest{}); err != nil || version.RuntimeName != simruntime.Name {
		t.Fatalf("Version = %v, %v", version, err)
	}
	if st, err := client.Status(ctx, &cri.StatusRequest{}); err != nil || len(st.Status.Conditions) != 2 {
		t.Fatalf("Status = %v, %v", st, err)
	}
	if _, err := client.ExecSync(ctx, &cri.ExecSyncRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("exec: %v, want Unimplemented", err)
	}
	p := populate(t, rt, 1, 2)[0]
	sandbox, graceful, abrupt := p.Sandboxes[0].ID, p.Containers[0].ID, p.Containers[1].ID
	steps := []func() error{
		func() error {
			return second(client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: graceful, Timeout: 10}))
		},
		func() error { return second(client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: abrupt})) },
		func() error {
			return second(client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: graceful}))
		},
		func() error {
			return second(client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}))
		},
		func() error {
			return second(client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox}))
		},
	}
	want := []string{"ready exited:0 running:0", "ready exited:0 exited:137", "ready exited:137", "stopped exited:137", "gone"}
	for i, step := range steps {
		for range 2 { // each is idempotent
			if err := step(); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			if got := inWords(rt, p.UID); got != want[i] {
				t.Errorf("after step %d: %s, want %s", i, got, want[i])
			}
		}
	}
}

func inWords(rt *simruntime.Runtime, uid string) string {
	p, ok := rt.Pod(uid)
	if !ok {
		return "gone"
	}
	text := "stopped"
	if p.Sandboxes[0].Ready {
		text = "ready"
	}
	for _, c := range p.Containers {
		text += fmt.Sprintf(" %v:%d", c.State, c.ExitCode)
	}
	return text
}

func TestExitByControlAPIIsListed(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	client := overSocket(t, rt)
	p := populate(t, rt, 1, 2)[0]
	c := p.Containers[0]
	before := time.Now()
	if err := rt.ExitContainer(c.ID, 137, simruntime.ReasonOOMKilled); err != nil {
		t.Fatal(err)
	}
	got := containerStatus(t, client, c.ID)
	if got.ExitCode != 137 || got.Reason != "OOMKilled" || time.Unix(0, got.FinishedAt).Before(before) {
		t.Errorf("status = %v", got)
	}
	next, err := rt.RestartContainer(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	got = containerStatus(t, client, next.ID)
	if next.ID == c.ID || got.Metadata.Attempt != 1 || got.Annotations["io.kubernetes.container.restartCount"] != "1" ||
		got.Labels["io.kubernetes.pod.uid"] != p.UID || !strings.HasSuffix(got.LogPath, "/1.log") {
		t.Errorf("restarted container = %v", got)
	}
	if old := containerStatus(t, client, c.ID); old.ExitCode != 137 || old.State != cri.ContainerState_CONTAINER_EXITED {
		t.Errorf("after the restart the old container = %v", old)
	}
	if err := rt.RemovePod(p.UID); err != nil {
		t.Fatal(err)
	}
	if _, ok := rt.Pod(p.UID); ok {
		t.Error("a removed pod is still there")
	}
}

func containerStatus(t *testing.T, client cri.RuntimeServiceClient, id string) *cri.ContainerStatus {
	t.Helper()
	resp, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}

func sandboxStatus(t *testing.T, client cri.RuntimeServiceClient, id string) *cri.PodSandboxStatus {
	t.Helper()
	resp, err := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}
