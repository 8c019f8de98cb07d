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

func TestLifecycleOverSocket(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{DualStack: true})
	client := overSocket(t, rt)
	ctx := t.Context()

	version, err := client.Version(ctx, &cri.VersionRequest{})
	if err != nil || version.RuntimeName != simruntime.Name || version.RuntimeApiVersion != "v1" {
		t.Fatalf("Version = %v, %v", version, err)
	}
	st, err := client.Status(ctx, &cri.StatusRequest{})
	if err != nil || len(st.Status.Conditions) != 2 {
		t.Fatalf("Status = %v, %v", st, err)
	}
	podCfg := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u-1", Attempt: 3},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "u-1", "a": "b"}, LogDirectory: "/logs",
	}
	run, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podCfg, RuntimeHandler: "runsc"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podCfg}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same sandbox attempt again: %v, want AlreadyExists", err)
	}
	create := &cri.CreateContainerRequest{PodSandboxId: run.PodSandboxId, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "img:1"}, LogPath: "c/0.log",
	}}
	made, err := client.CreateContainer(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	fresh := containerStatus(t, client, made.ContainerId)
	if fresh.State != cri.ContainerState_CONTAINER_CREATED || fresh.LogPath != "/logs/c/0.log" {
		t.Errorf("created container has state %v and log path %q", fresh.State, fresh.LogPath)
	}
	begin := &cri.StartContainerRequest{ContainerId: made.ContainerId}
	if _, err := client.StartContainer(ctx, begin); err != nil {
		t.Fatal(err)
	}
	if _, err := client.StartContainer(ctx, begin); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("starting a running container: %v, want FailedPrecondition", err)
	}
	sb := sandboxStatus(t, client, run.PodSandboxId)
	if sb.Network.Ip != "10.88.0.1" || len(sb.Network.AdditionalIps) != 1 || sb.RuntimeHandler != "runsc" || sb.Metadata.Attempt != 3 {
		t.Errorf("sandbox status = %v", sb)
	}
	if _, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	got := containerStatus(t, client, made.ContainerId)
	if got.State != cri.ContainerState_CONTAINER_EXITED || got.ExitCode != 137 || got.Reason != "Error" ||
		got.CreatedAt >= got.StartedAt || got.StartedAt >= got.FinishedAt {
		t.Errorf("stopped container = %v", got)
	}
	removeAll(t, client, run.PodSandboxId, made.ContainerId)
	if pods := rt.Pods(); len(pods) != 0 {
		t.Errorf("pods left: %v", pods)
	}
}

// removeAll removes twice, as every step of it is idempotent.
func removeAll(t *testing.T, client cri.RuntimeServiceClient, sandboxID, containerID string) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		if _, err := client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: containerID}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandboxID})
	if status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed sandbox: %v, want NotFound", err)
	}
	_, err = client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containerID})
	if status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed container: %v, want NotFound", err)
	}
}

func TestImpossibleRequestsHaveCodes(t *testing.T) {
	rt := newRuntime(t, simruntime.Options{})
	client := overSocket(t, rt)
	p := populate(t, rt, 1, 1)[0]
	if err := rt.StopSandbox(p.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	cfg := &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "x"}}
	create := func(sandboxID string, cfg *cri.ContainerConfig) error {
		return second(client.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandboxID, Config: cfg}))
	}
	for name, tc := range map[string]struct {
		err  error
		want codes.Code
	}{
		"run without metadata": {
			second(client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{}})), codes.InvalidArgument,
		},
		"create without name":         {create(p.Sandboxes[0].ID, nil), codes.InvalidArgument},
		"create in no sandbox":        {create("none", cfg), codes.NotFound},
		"create in a stopped sandbox": {create(p.Sandboxes[0].ID, cfg), codes.FailedPrecondition},
		"start no container":          {second(client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: "none"})), codes.NotFound},
		"exec":                        {second(client.ExecSync(ctx, &cri.ExecSyncRequest{})), codes.Unimplemented},
	} {
		if status.Code(tc.err) != tc.want {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
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
