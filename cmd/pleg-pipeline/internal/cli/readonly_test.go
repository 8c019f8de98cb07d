package cli_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
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
)

// reading are the calls that change nothing. The program makes no others.
var reading = []string{
	"ContainerStatus", "GetContainerEvents", "ImageFsInfo", "ListContainers", "ListPodSandbox",
	"PodSandboxStatus", "Status", "StreamContainers", "StreamPodSandboxes", "Version",
}

// counted serves a simulated runtime that counts every call it gets.
func counted(t *testing.T) (endpoint string, runtime *simruntime.Runtime) {
	t.Helper()
	runtime, err := simruntime.New(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.Populate(simruntime.Population{Pods: 3, Containers: 2, Dead: 1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cri.sock")
	l, err := unixsocket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	ctx := t.Context() // ends before the cleanups
	go func() { defer close(served); _ = runtime.Serve(ctx, l) }()
	t.Cleanup(func() { <-served })
	return "unix://" + path, runtime
}

// TestProgramOnlyReads runs every command that talks to a runtime, and looks at
// what the runtime was asked.
func TestProgramOnlyReads(t *testing.T) {
	endpoint, runtime := counted(t)
	socket := filepath.Join(t.TempDir(), "s")
	for _, mode := range []string{"off", "require"} {
		s := start(t, newTranscript(), "run", "-r", endpoint, "--events", mode, "--socket", socket, "--relist-period", "10ms")
		known := pods(t, socket, 3)
		runtime.Burst(3, simruntime.Replace)
		c, err := client.New(socket, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PodStatus(t.Context(), known[0].UID, time.Now()); err != nil { // the next list is in
			t.Error(err)
		}
		c.Close()
		s.stop()
		s.ends(t, 0)
	}
	run(t, "run", "-r", endpoint, "--unary-lists", "--socket", "/nonexistent/dir/s")
	run(t, "pods", "-r", endpoint)
	run(t, "doctor", "-r", endpoint)
	run(t, "record", filepath.Join(t.TempDir(), "r.jsonl"), "-r", endpoint, "--relist-period", "10ms", "--duration", "100ms")
	s := start(t, newTranscript(), "events", "-r", endpoint, "--replay")
	s.stderr.await(t, "connected to")
	s.stop()
	<-s.code
	asked := slices.Sorted(maps.Keys(runtime.Stats().RPCs))
	for _, rpc := range asked {
		if !slices.Contains(reading, rpc) {
			t.Errorf("the runtime was asked for %s, which may change something", rpc)
		}
	}
	for _, rpc := range []string{"ContainerStatus", "GetContainerEvents", "ImageFsInfo", "StreamContainers", "Status", "Version"} {
		if !slices.Contains(asked, rpc) {
			t.Errorf("the runtime was not asked for %s but for %v: the test does not see all", rpc, asked)
		}
	}
}

// TestProgramNamesNoCallThatWrites looks for the calls of the CRI that change
// something in the code of all that has a connection to a runtime.
func TestProgramNamesNoCallThatWrites(t *testing.T) {
	calls := make(map[string]bool)
	for _, m := range slices.Concat(runtimeapi.RuntimeService_ServiceDesc.Methods, runtimeapi.ImageService_ServiceDesc.Methods) {
		calls[m.MethodName] = !slices.Contains(reading, m.MethodName)
	}
	for _, s := range runtimeapi.RuntimeService_ServiceDesc.Streams {
		calls[s.StreamName] = !slices.Contains(reading, s.StreamName)
	}
	seen := 0
	for _, dir := range []string{"../../../../cri", "../doctor", "../endpoint", "../recording", "../httpserver", ".", "../../../../server", "../../../../stage", "../../../../cache"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					name := fullName.ReplaceAllString(s.Sel.Name, "$1")
					if writes, known := calls[name]; known && writes {
						t.Errorf("%s names %s", path, s.Sel.Name)
					} else if known {
						seen++
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Errorf("%d calls seen, want more: the test does not look where they are", seen)
	}
}

// TestClientsCauseNoCalls has clients ask all that there is to ask while no list
// is due: what they get comes from the cache.
func TestClientsCauseNoCalls(t *testing.T) {
	endpoint, runtime := counted(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := start(t, newTranscript(), "run", "-r", endpoint, "-q", "--socket", socket, "--listen", "0", "--relist-period", "1h", "--relist-threshold", "2h")
	url := servedOn.FindString(s.stderr.await(t, "connected to"))
	known := pods(t, socket, 3)
	before := runtime.Stats().Calls()
	c, err := client.New(socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, p := range known {
		if _, err := c.PodStatus(t.Context(), p.UID, time.Time{}); err != nil {
			t.Error(err)
		}
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.PodStatus(impatient, known[0].UID, time.Now()); err == nil {
		t.Error("there is a status that is newer than the last list")
	}
	for range 20 {
		pods(t, socket, 3)
		for _, path := range []string{"/metrics", "/livez", "/readyz?verbose", "/pods", "/pods/" + string(known[0].UID), "/events"} {
			answer, err := http.Get(url + path) //nolint:noctx // the test has a deadline
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s = %d, want 200", path, answer.StatusCode)
			}
		}
	}
	if after := runtime.Stats().Calls(); after != before {
		t.Errorf("the runtime got %d calls because of clients, want none", after-before)
	}
	s.stop()
	s.ends(t, 0)
	http.DefaultClient.CloseIdleConnections()
}

var (
	fullName = regexp.MustCompile(`^(?:Runtime|Image)Service_(\w+)_FullMethodName$`)
	servedOn = regexp.MustCompile(`http://[\d.:]+`)
)
