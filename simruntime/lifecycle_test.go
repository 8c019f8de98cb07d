package simruntime_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestClientsOnlyRead(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	client := overSocket(t, rt)
	if version, err := client.Version(t.Context(), &cri.VersionRequest{}); err != nil || version.RuntimeName != simruntime.Name {
		t.Errorf("Version = %v, %v", version, err)
	}
	if st, err := client.Status(t.Context(), &cri.StatusRequest{}); err != nil || len(st.Status.Conditions) != 2 {
		t.Errorf("Status = %v, %v", st, err)
	}
	id := populate(t, rt, 1, 1)[0].Containers[0].ID
	if _, err := client.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id}); status.Code(err) != codes.Unimplemented {
		t.Errorf("stop: %v, want Unimplemented", err)
	}
	if got := containerStatus(t, client, id).State; got != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the stop the container is %v", got)
	}
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
