package doctor_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// stub is a runtime with one sandbox and these conditions.
type stub struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	conditions []*runtimeapi.RuntimeCondition
	dead       int // sandboxes of the same pod
	containers []*runtimeapi.Container
	// cgroups are the cgroups of the containers, info is what else is reported of them, such as
	// "pid": 41 and a comma. handler is the runtime handler of the sandbox.
	cgroups       map[string]string
	info, handler string
	// ends is when the container ends; zero if it lives.
	ends time.Time
}

func (s *stub) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "stub"}, nil
}

func (s *stub) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: s.conditions}}, nil
}

func (s *stub) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	meta := &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "shop", Name: "web-0"}
	items := []*runtimeapi.PodSandbox{{Id: "s", RuntimeHandler: s.handler, Metadata: meta}}
	for n := range s.dead {
		items = append(items, &runtimeapi.PodSandbox{Id: fmt.Sprint("dead", n), State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, Metadata: meta})
	}
	return &runtimeapi.ListPodSandboxResponse{Items: items}, nil
}

func (s *stub) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: s.containers}, nil
}

// ContainerStatus answers as containerd and CRI-O do if they are asked to be verbose.
// The container with the id hangs does not answer.
func (s *stub) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if r.GetContainerId() == "hangs" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	answer := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: r.GetContainerId(), State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	if !s.ends.IsZero() && !time.Now().Before(s.ends) {
		answer.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	if r.GetVerbose() {
		answer.Info = map[string]string{"info": `{` + s.info + `"runtimeSpec": {"linux": {"cgroupsPath": "` + s.cgroups[r.GetContainerId()] + `"}}}`}
	}
	return answer, nil
}

func (s *stub) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	st := &runtimeapi.PodSandboxStatus{Id: r.GetPodSandboxId()}
	if st.Id != "s" {
		st.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: st}, nil
}

func (s *stub) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/images"},
	}}}, nil
}

// TestExamineNode has causes that are not in the lists.
func TestExamineNode(t *testing.T) {
	quiet := fstest.MapFS{
		"io":     {Data: []byte("some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")},
		"cpu":    {Data: []byte("some avg10=2.00 avg60=0.00 avg300=0.00 total=1\n")},
		"memory": {Data: []byte("nonsense\nsome\nsome avg10=x\n")},
	}
	busy := fstest.MapFS{"io": {Data: []byte("some avg10=61.00 avg60=0.00 avg300=0.00 total=1\n")}}
	for _, test := range []struct {
		name         string
		conditions   []*runtimeapi.RuntimeCondition
		pressure     fstest.MapFS
		used, inodes float64
		cause        verdict.Cause
		severity     verdict.Severity
		evidence     string
	}{
		{"no address", nil, quiet, 50, 10, verdict.NetworkPlugin, verdict.Warning, "1 ready sandboxes have no address"},
		{
			"network",
			[]*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not \x1binitialized"}},
			quiet, 50, 10, verdict.NetworkPlugin, verdict.Problem, "NetworkPluginNotReady cni plugin not ",
		},
		{"not ready", []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Reason: "Broken"}}, quiet, 50, 10, verdict.RuntimeUnready, verdict.Problem, "Broken"},
		{"full disk", nil, quiet, 97, 10, verdict.Disk, verdict.Problem, "/var/lib/images is 97 % full"},
		{"no inodes", nil, quiet, 50, 99, verdict.Disk, verdict.Problem, "99 % of the inodes of /var/lib/images"},
		{"busy disk", nil, busy, 50, 10, verdict.NetworkPlugin, verdict.Warning, ""},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			o := serveStub(t, &stub{conditions: test.conditions})
			o.Pressure = test.pressure
			o.Usage = func(string) (float64, float64, error) { return test.used, test.inodes, nil }
			r := doctor.Examine(t.Context(), o)
			check(t, r, test.cause, test.severity, test.evidence)
			if test.name == "busy disk" && (len(r.Findings) != 2 || r.Findings[1].Cause != verdict.Disk) {
				t.Errorf("findings %+v, want the disk too", r.Findings)
			}
			if n := r.Node; n.MemoryPressure != nil || n.IOPressure == nil {
				t.Errorf("node %+v, want what could be read", n)
			}
			var text bytes.Buffer
			if _ = r.Print(&text, doctor.TextOptions{}); strings.Contains(text.String(), "\x1b") {
				t.Errorf("text %q moves the cursor", &text)
			}
		})
	}
}

// serveStub serves a stub in memory until the test ends.
func serveStub(t *testing.T, s *stub, o ...grpc.ServerOption) doctor.Options {
	t.Helper()
	l, to := memory()
	server := grpc.NewServer(o...)
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return options("unix:///in-memory", to)
}

func TestExamineWithoutRuntime(t *testing.T) {
	l, stale := socket(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	_, hung := socket(t)
	_, removed := socket(t)
	kit.Must(t, os.Remove(removed))
	for _, test := range []struct {
		endpoint string
		cause    verdict.Cause
		evidence string
	}{
		{"unix:///nonexistent/s", verdict.RuntimeStopped, "unix:///nonexistent/s: the socket does not exist"},
		{removed, verdict.Fallback, removed + ": the socket is gone: the runtime answers only on connections that are open"},
		{stale, verdict.RuntimeStopped, stale + ": nobody listens on the socket"},
		{t.TempDir(), verdict.RuntimeStopped, "it is a directory"},
		{"tcp://127.0.0.1:80", verdict.RuntimeStopped, "is not a unix socket"},
		{hung, verdict.RuntimeHangs, "never answers"},
	} {
		o := options(test.endpoint)
		o.CallTimeout = 100 * time.Millisecond
		check(t, doctor.Examine(t.Context(), o), test.cause, verdict.Problem, test.evidence)
	}
}
