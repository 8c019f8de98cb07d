package cli_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// readCalls are the CRI calls that change nothing. The program makes no others.
var readCalls = []string{
	"ContainerStatus", "GetContainerEvents", "ImageFsInfo", "ListContainers", "ListPodSandbox",
	"PodSandboxStatus", "Status", "Version",
}

// serveRuntime serves a simulated runtime, which counts the calls it gets.
func serveRuntime(t *testing.T) (endpoint string, runtime *simruntime.Runtime) {
	t.Helper()
	runtime, err := simruntime.New(simruntime.Options{})
	kit.Must(t, err)
	if _, err := runtime.Populate(simruntime.Population{Pods: 3, Containers: 2, Dead: 1}); err != nil {
		t.Fatal(err)
	}
	path := socketPath(t)
	l, err := unixsocket.Listen(t.Context(), path)
	kit.Must(t, err)
	kit.Run(t, func(ctx context.Context) error { return runtime.Serve(ctx, l) })
	return "unix://" + path, runtime
}

func newClient(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestProgramOnlyReads runs every command that talks to a runtime and checks which calls the
// runtime got.
func TestProgramOnlyReads(t *testing.T) {
	t.Parallel()
	endpoint, runtime := serveRuntime(t)
	socket := socketPath(t)
	for _, mode := range []string{"off", "require"} {
		s := start(t, newTranscript(), "run", "-r", endpoint, "--events", mode, "--socket", socket, "--relist-period", "10ms", "--relist-period-with-events", "10ms")
		known := waitForPods(t, socket, 3)
		runtime.Burst(3, simruntime.Replace)
		if _, err := newClient(t, socket).PodStatus(t.Context(), known[0].UID, time.Now()); err != nil { // waits for the next relist
			t.Error(err)
		}
		s.stopAndWait(t)
	}
	run(t, "pods", "-r", endpoint)
	run(t, "doctor", "-r", endpoint)
	run(t, "record", filepath.Join(t.TempDir(), "r.jsonl"), "-r", endpoint, "--relist-period", "10ms", "--duration", "100ms")
	s := start(t, newTranscript(), "events", "-r", endpoint, "--replay")
	s.stderr.await(t, "connected to")
	s.stop()
	s.code()
	got := slices.Sorted(maps.Keys(runtime.Stats().RPCs))
	for _, rpc := range got {
		if !slices.Contains(readCalls, rpc) {
			t.Errorf("the runtime got %s, which can change something", rpc)
		}
	}
	for _, rpc := range []string{"ContainerStatus", "GetContainerEvents", "ImageFsInfo", "ListContainers", "Status", "Version"} {
		if !slices.Contains(got, rpc) {
			t.Errorf("the runtime did not get %s, only %v: the test does not see all calls", rpc, got)
		}
	}
}

// TestProgramNamesNoCallThatWrites parses the module and checks that the code of the
// program, and of all packages it imports, names no CRI call that changes something.
func TestProgramNamesNoCallThatWrites(t *testing.T) {
	t.Parallel()
	writes := make(map[string]bool)
	for _, m := range slices.Concat(runtimeapi.RuntimeService_ServiceDesc.Methods, runtimeapi.ImageService_ServiceDesc.Methods) {
		writes[m.MethodName] = !slices.Contains(readCalls, m.MethodName)
	}
	for _, s := range runtimeapi.RuntimeService_ServiceDesc.Streams {
		writes[s.StreamName] = !slices.Contains(readCalls, s.StreamName)
	}
	reads := 0
	for _, path := range programFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		kit.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				name := fullName.ReplaceAllString(s.Sel.Name, "$1")
				if isWrite, isCall := writes[name]; isCall && isWrite {
					t.Errorf("%s names %s", path, s.Sel.Name)
				} else if isCall {
					reads++
				}
			}
			return true
		})
	}
	if reads < 10 {
		t.Errorf("the code names %d calls, want more: the test does not look in the right places", reads)
	}
}

// programFiles returns the Go files of this module from which the program is built, except
// generated files.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	const module = "github.com/pleg-pipeline/pleg-pipeline"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{$dir := .Dir}}{{range .GoFiles}}{{$.ImportPath}} {{$dir}}/{{.}}{{"\n"}}{{end}}`, module+"/cmd/pleg-pipeline")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		importPath, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(importPath, module) && !strings.HasPrefix(importPath, module+"/api/") {
			files = append(files, file)
		}
	}
	return files
}

// TestClientsCauseNoCalls makes clients ask for everything while no relist is due: the
// cache answers them.
func TestClientsCauseNoCalls(t *testing.T) {
	t.Parallel()
	endpoint, runtime := serveRuntime(t)
	socket := socketPath(t)
	s := start(t, newTranscript(), "run", "-r", endpoint, "-q", "--socket", socket, "--listen", "0", "--relist-period", "1h", "--relist-threshold", "2h")
	url := servedOn.FindString(s.stderr.await(t, "connected to"))
	known := waitForPods(t, socket, 3)
	calls := func() int64 { // without what the daemon asks by itself
		stats := runtime.Stats()
		return stats.Calls() - stats.RPCs["Version"].Calls - stats.RPCs["ImageFsInfo"].Calls
	}
	before := calls()
	c := newClient(t, socket)
	for _, p := range known {
		if _, err := c.PodStatus(t.Context(), p.UID, time.Time{}); err != nil {
			t.Error(err)
		}
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.PodStatus(impatient, known[0].UID, time.Now()); err == nil {
		t.Error("PodStatus returned a status newer than the last list")
	}
	for range 20 {
		waitForPods(t, socket, 3)
		for _, path := range []string{"/metrics", "/livez", "/readyz?verbose", "/pods", "/pods/" + string(known[0].UID)} {
			if code, _ := get(t, url+path); code != http.StatusOK {
				t.Errorf("%s = %d, want 200", path, code)
			}
		}
		events := open(t, url+"/events")
		if _ = events.Body.Close(); events.StatusCode != http.StatusOK {
			t.Errorf("/events = %d, want 200", events.StatusCode)
		}
	}
	if after := calls(); after != before {
		t.Errorf("clients caused %d calls to the runtime, want none", after-before)
	}
	s.stopAndWait(t)
}

var (
	fullName = regexp.MustCompile(`^(?:Runtime|Image)Service_(\w+)_FullMethodName$`)
	servedOn = regexp.MustCompile(`http://[\d.:]+`)
)
