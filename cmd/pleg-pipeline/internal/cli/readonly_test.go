package cli_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	kitprocess "github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// readCalls are the CRI calls that change nothing. The program makes no other calls.
var readCalls = []string{
	"ContainerStatus", "GetContainerEvents", "ImageFsInfo", "ListContainers", "ListPodSandbox",
	"PodSandboxStatus", "Status", "Version",
}

func newClient(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
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
			name := ""
			switch n := n.(type) {
			case *ast.SelectorExpr:
				name = fullName.ReplaceAllString(n.Sel.Name, "$1")
			case *ast.BasicLit: // such as "/runtime.v1.RuntimeService/StopContainer"
				name = strings.Trim(n.Value[strings.LastIndex(n.Value, "/")+1:], "\"`")
			}
			if isWrite, isCall := writes[name]; isWrite {
				t.Errorf("%s names %s", path, name)
			} else if isCall {
				reads++
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
	runtime := simruntime.New(simruntime.Options{})
	runtime.Populate(simruntime.Population{Pods: 3, Containers: 2, Dead: 1})
	began := time.Now()
	listener, endpoint := kit.Socket(t) // before the first list: the second one comes after an hour
	socket := socketPath(t)
	kit.Run(t, func(ctx context.Context) error { return runtime.Serve(ctx, listener) })
	s := start(t, newTranscript(), "run", "-r", endpoint, "--wait-for-runtime", "-q", "--socket", socket, "--listen", "0",
		"--relist-period", "1h", "--relist-threshold", "2h")
	url := servedOn.FindString(s.stderr.await(t, "serving pods and events on"))
	known := waitForPods(t, socket, 3)
	calls := func() int64 { // without the daemon's own calls, which own bounds
		stats := runtime.Stats()
		n := stats.Calls() - stats.RPCs["ContainerStatus"].Verbose
		for _, own := range []string{"Version", "ImageFsInfo", "Status"} {
			n -= stats.RPCs[own].Calls
		}
		return n
	}
	kitprocess.Eventually(t, "the daemon's own lists, for their sizes", func(context.Context) error {
		rpcs := runtime.Stats().RPCs
		if sandboxes, containers := rpcs["ListPodSandbox"].Calls, rpcs["ListContainers"].Calls; min(sandboxes, containers) < 2 {
			return fmt.Errorf("%d lists of sandboxes, %d of containers", sandboxes, containers)
		}
		return nil
	})
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
	for range 5 {
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
		t.Errorf("clients caused %d calls to the runtime, want none: %+v", after-before, runtime.Stats().RPCs)
	}
	stats, passed := runtime.Stats(), time.Since(began)
	for name, own := range map[string]struct {
		calls, most int64
		period      time.Duration
	}{
		"Version":         {stats.RPCs["Version"].Calls, 3, 2 * time.Second}, // the probe, while a list is slow
		"Status":          {stats.RPCs["Status"].Calls, 1, 10 * time.Second},
		"ImageFsInfo":     {stats.RPCs["ImageFsInfo"].Calls, 1, 5 * time.Second},
		"ContainerStatus": {stats.RPCs["ContainerStatus"].Verbose, 2 * 3 * 2, time.Hour}, // each container that runs, twice
	} {
		if most := own.most + int64(passed/own.period); own.calls > most {
			t.Errorf("%d calls of %s in %v, want at most %d", own.calls, name, passed, most)
		}
	}
	s.stopAndWait(t)
	if text := s.stderr.String(); strings.Count(text, "connected to simruntime 0.1.0 at "+endpoint+"\n") != 1 || strings.Count(text, "connected to") != 1 || strings.Contains(text, "waiting") {
		t.Errorf("stderr %q, want that it is connected, once", text)
	}
}

var (
	fullName = regexp.MustCompile(`^(?:Runtime|Image)Service_(\w+)_FullMethodName$`)
	servedOn = regexp.MustCompile(`http://[\d.:]+`)
)
