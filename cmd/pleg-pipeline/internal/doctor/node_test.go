package doctor_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
)

// stub is a runtime with one sandbox and these conditions.
type stub struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	conditions []*runtimeapi.RuntimeCondition
}

func (s *stub) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "stub"}, nil
}

func (s *stub) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: s.conditions}}, nil
}

func (s *stub) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s"}}}, nil
}

func (s *stub) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s"}}, nil
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
		cause        doctor.Cause
		severity     doctor.Severity
		evidence     string
	}{
		{"no address", nil, quiet, 50, 10, doctor.NetworkPlugin, doctor.Warning, "1 ready sandboxes have no address"},
		{
			"network",
			[]*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not \x1binitialized"}},
			quiet, 50, 10, doctor.NetworkPlugin, doctor.Problem, "NetworkPluginNotReady cni plugin not ",
		},
		{"not ready", []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Reason: "Broken"}}, quiet, 50, 10, doctor.RuntimeUnready, doctor.Problem, "Broken"},
		{"full disk", nil, quiet, 97, 10, doctor.Disk, doctor.Problem, "/var/lib/images is 97 % full"},
		{"no inodes", nil, quiet, 50, 99, doctor.Disk, doctor.Problem, "99 % of the inodes of /var/lib/images"},
		{"busy disk", nil, busy, 50, 10, doctor.NetworkPlugin, doctor.Warning, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, to := memory()
				server := grpc.NewServer()
				s := &stub{conditions: test.conditions}
				runtimeapi.RegisterRuntimeServiceServer(server, s)
				runtimeapi.RegisterImageServiceServer(server, s)
				served := make(chan struct{})
				go func() { defer close(served); _ = server.Serve(l) }()
				t.Cleanup(func() { server.Stop(); <-served })
				o := options("unix:///in-memory", to)
				o.Pressure = test.pressure
				o.Usage = func(string) (float64, float64, error) { return test.used, test.inodes, nil }
				r := doctor.Examine(t.Context(), o)
				check(t, r, test.cause, test.severity, test.evidence)
				if test.name == "busy disk" && (len(r.Findings) != 2 || r.Findings[1].Cause != doctor.Disk) {
					t.Errorf("findings %+v, want the disk too", r.Findings)
				}
				if n := r.Node; n.MemoryPressure != nil || n.IOPressure == nil {
					t.Errorf("node %+v, want what could be read", n)
				}
				var text bytes.Buffer
				if _ = r.Print(&text); strings.Contains(text.String(), "\x1b") {
					t.Errorf("text %q moves the cursor", &text)
				}
			})
		})
	}
}
