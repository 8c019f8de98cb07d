// Command upstream makes a small change to a copy of the kubelet's sources, with which
// GenericPLEG inspects the changed pods at most four at a time, and runs a command of go
// with that copy in place of the original:
//
//	upstream go test -race k8s.io/kubernetes/pkg/kubelet/pleg
//
// It runs in the folder of the module. With -diff it prints the change.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// name is the file that changes.
const name = "pkg/kubelet/pleg/generic.go"

// edits are the change: each old text must be there once.
var edits = []struct{ old, new string }{
	{`	"k8s.io/klog/v2"
`, `	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
`},
	{`	for pid := range g.podRecords {
		g.reconcilePodRecord(ctx, pid)
	}

	// Update the cache timestamp.`, `	g.reconcilePodRecords(ctx)

	// Update the cache timestamp.`},
	{`// reconcilePodRecord compares the old & current pod record and checks for event-worthy state
`, `// maxInspections is the number of changed pods that are inspected at the same time.
const maxInspections = 4

// podChange is what a relist found of a pod.
type podChange struct {
	pid    types.UID
	pod    *kubecontainer.Pod
	events []*PodLifecycleEvent
}

// reconcilePodRecords reconciles all pod records. The pods that need it are inspected
// concurrently; records and events belong to one goroutine at a time.
func (g *GenericPLEG) reconcilePodRecords(ctx context.Context) {
	var changes []podChange
	for pid := range g.podRecords {
		if change, ok := g.comparePodRecord(ctx, pid); ok {
			changes = append(changes, change)
		}
	}
	var inspections errgroup.Group
	inspections.SetLimit(maxInspections)
	var mu sync.Mutex
	for _, change := range changes {
		inspections.Go(func() error {
			status, err := g.updateCache(ctx, change.pod, change.pid)
			mu.Lock()
			defer mu.Unlock()
			g.finishReconcile(ctx, change, status, err)
			return nil
		})
	}
	_ = inspections.Wait() // the errors are those of pods, and have been handled
}

// reconcilePodRecord compares the old & current pod record and checks for event-worthy state
`},
	{`func (g *GenericPLEG) reconcilePodRecord(ctx context.Context, pid types.UID) {
	logger := klog.FromContext(ctx)
`, `func (g *GenericPLEG) reconcilePodRecord(ctx context.Context, pid types.UID) {
	if change, ok := g.comparePodRecord(ctx, pid); ok {
		status, err := g.updateCache(ctx, change.pod, pid)
		g.finishReconcile(ctx, change, status, err)
	}
}

// comparePodRecord returns false if the pod needs no inspection.
func (g *GenericPLEG) comparePodRecord(ctx context.Context, pid types.UID) (podChange, bool) {
	logger := klog.FromContext(ctx)
`},
	{`	if len(events) == 0 && !reinspect {
		// Nothing else needed for this pod.
		return
	}

`, `	return podChange{pid, pod, events}, len(events) > 0 || reinspect
}

// finishReconcile delivers the events of a pod that has been inspected.
func (g *GenericPLEG) finishReconcile(ctx context.Context, change podChange, status *kubecontainer.PodStatus, err error) {
	logger := klog.FromContext(ctx)
	pid, pod, events := change.pid, change.pod, change.events
`},
	{`	// TODO: If many pods changed during the same relist period,
	// inspecting the pod and getting the PodStatus to update the cache
	// serially may take a while. We should be aware of this and
	// parallelize if needed.
	status, err := g.updateCache(ctx, pod, pid)
	if err != nil {
		// Rely`, `	if err != nil {
		// Rely`},
}

func main() {
	diff := flag.Bool("diff", false, "print the change and exit")
	flag.Parse()
	if err := run(*diff, flag.Args()); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func run(diff bool, args []string) error {
	if !diff && (len(args) < 2 || args[0] != "go") {
		return errors.New("want a command of go, such as: go test k8s.io/kubernetes/pkg/kubelet/pleg")
	}
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return fmt.Errorf("find the kubelet's sources: %w", err)
	}
	sources := strings.TrimSpace(string(folder))
	original := filepath.Join(sources, name)
	text, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	changed, err := change(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", original, err)
	}
	work, err := os.MkdirTemp("", "upstream-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if diff {
		return printDiff(work, text, changed)
	}
	module, err := replaceModule(work, sources, changed)
	if err != nil {
		return fmt.Errorf("copy the kubelet's sources: %w", err)
	}
	c := exec.Command(args[0], append([]string{args[1], "-modfile", module}, args[2:]...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// replaceModule copies the sources and this module's go.mod, and returns the path of the
// latter, which replaces the sources by the changed copy.
func replaceModule(work, sources string, changed []byte) (string, error) {
	clone := filepath.Join(work, "kubernetes")
	if err := os.CopyFS(clone, os.DirFS(sources)); err != nil {
		return "", err
	}
	file := filepath.Join(clone, name)
	if err := os.Remove(file); err != nil {
		return "", err
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return "", err
	}
	for _, own := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(own)
		if err != nil {
			return "", err
		}
		if own == "go.mod" {
			text = fmt.Appendf(text, "\nreplace k8s.io/kubernetes => %s\n", clone)
		}
		if err := os.WriteFile(filepath.Join(work, own), text, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(work, "go.mod"), nil
}

// change returns the kubelet's source with the edits.
func change(text string) ([]byte, error) {
	for _, e := range edits {
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("this text is there %d times, want once; is it another version?\n%s", n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return format.Source([]byte(text))
}

// printDiff prints the change as git does.
func printDiff(work string, before, after []byte) error {
	for side, text := range map[string][]byte{"a": before, "b": after} {
		path := filepath.Join(work, side, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	c := exec.Command("git", "diff", "--no-index", "--no-prefix", "--stat", "-p", "a", "b")
	c.Dir, c.Stdout, c.Stderr = work, os.Stdout, os.Stderr
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil // there is a difference
	}
	return err
}
