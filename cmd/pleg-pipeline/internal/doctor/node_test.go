package doctor_test

import (
	"bytes"
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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// stub returns a runtime with the ready sandbox s on the host's network, running containers, and a
// disk of images.
func stub(containers ...*runtimeapi.Container) *rawruntime.Runtime {
	meta := &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "shop", Name: "web-0"}
	onHost := &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	s := &rawruntime.Runtime{
		Name:       "stub",
		Sandboxes:  []*runtimeapi.PodSandbox{{Id: "s", Metadata: meta}},
		Containers: containers,
		Images:     []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/images"}}},
		SandboxStatuses: map[string]*runtimeapi.PodSandboxStatusResponse{
			"s": {Status: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: meta, Linux: onHost}},
		},
		ContainerStatuses: make(map[string]*runtimeapi.ContainerStatusResponse),
	}
	for _, c := range containers {
		c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		s.ContainerStatuses[c.GetId()] = &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: c.GetId(), State: c.GetState(), Metadata: c.GetMetadata()}}
	}
	return s
}

// TestExamineNode tests causes that are not in the lists.
func TestExamineNode(t *testing.T) {
	quiet := fstest.MapFS{
		"io":     {Data: []byte("some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")},
		"cpu":    {Data: []byte("some avg10=2.00 avg60=0.00 avg300=0.00 total=1\n")},
		"memory": {Data: []byte("nonsense\nsome\nsome avg10=x\n")},
	}
	for _, test := range []struct {
		name         string
		conditions   []*runtimeapi.RuntimeCondition
		used, inodes float64
		cause        verdict.Cause
		severity     verdict.Severity
		evidence     string
	}{
		{"no address", nil, 50, 10, verdict.NetworkPlugin, verdict.Warning, "1 of 1 sandboxes are ready and have none"},
		{
			"network",
			[]*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not \x1binitialized"}},
			50, 10, verdict.NetworkPlugin, verdict.Problem, "NetworkPluginNotReady cni plugin not ",
		},
		{"not ready", []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Reason: "Broken"}}, 50, 10, verdict.RuntimeUnready, verdict.Problem, "Broken"},
		{"full disk", nil, 97, 10, verdict.Disk, verdict.Problem, "/var/lib/images is almost full"},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			s := stub()
			s.Conditions = test.conditions
			if test.name == "no address" {
				s.SandboxStatuses["s"].Status.Linux = nil
			}
			o := serveStub(t, s)
			o.Pressure = quiet
			o.Host.Usage = func(string) (float64, float64, error) { return test.used, test.inodes, nil }
			r := doctor.Examine(t.Context(), o)
			check(t, r, test.cause, test.severity, test.evidence)
			n := r.Node
			if n.MemoryPressure != nil || n.IOPressure == nil || *n.IOPressure != 1.5 || n.CPUPressure == nil || *n.CPUPressure != 2 {
				t.Errorf("node %+v, want what could be read", n)
			}
			if n.ImageFilesystem != "/var/lib/images" || n.UsedPercent == nil || *n.UsedPercent != test.used || *n.InodesPercent != test.inodes {
				t.Errorf("node %+v, want %v %% of the disk and %v %% of its inodes", n, test.used, test.inodes)
			}
			var text bytes.Buffer
			if _ = r.Print(&text, doctor.TextOptions{}); strings.Contains(text.String(), "\x1b") {
				t.Errorf("text %q moves the cursor", &text)
			}
			golden(t, r)
		})
	}
}

// serveStub serves a stub in memory until the test ends.
func serveStub(t *testing.T, s *rawruntime.Runtime, o ...grpc.ServerOption) doctor.Options {
	t.Helper()
	l, to := memory()
	rawruntime.Serve(t, s, l, o...)
	return options("unix:///in-memory", to)
}

func TestExamineWithoutRuntime(t *testing.T) {
	stale := kit.AbandonedSocket(t)
	_, hung := kit.Socket(t)
	_, removed := kit.Socket(t)
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
		{hung, verdict.RuntimeHangs, "the runtime hangs for at least "},
	} {
		o := options(test.endpoint)
		if test.endpoint == hung {
			o.Watch = 5500 * time.Millisecond
		}
		r := doctor.Examine(t.Context(), o)
		check(t, r, test.cause, verdict.Problem, test.evidence)
		if advice := "name a unix socket with --runtime-endpoint"; strings.HasPrefix(test.endpoint, "tcp:") && (r.Findings[0].Advice != advice || r.Runtime != "") {
			t.Errorf("%s: advice %q, want %q", test.endpoint, r.Findings[0].Advice, advice)
		}
	}
}
