// Command upstream makes a small change to a copy of the kubelet's sources: with the new
// gate PLEGConcurrentInspections, GenericPLEG inspects the changed pods at most four at a
// time. It runs a command of go with that copy, and the gate on, in place of the original:
//
//	upstream go test -race k8s.io/kubernetes/pkg/kubelet/pleg
//
// It runs in the folder of any module that requires k8s.io/kubernetes. With -diff it prints
// the change, with -write it writes the changed files into a folder.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	diff := flag.Bool("diff", false, "print the change and exit")
	folder := flag.String("write", "", "write the changed files into this `folder` and exit")
	flag.Parse()
	var err error
	switch {
	case *diff:
		err = withChange(printDiff)
	case *folder != "":
		err = withChange(func(_, _ string, changed map[string]string) error {
			setGate(changed, gateOff)
			return writeFiles(*folder, changed)
		})
	default:
		err = withChange(func(work, sources string, changed map[string]string) error {
			return runGo(work, sources, changed, flag.Args())
		})
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// withChange calls do with an empty folder, the folder of the kubelet's sources, and the
// changed files by name.
func withChange(do func(work, sources string, changed map[string]string) error) error {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return fmt.Errorf("find the kubelet's sources: %w", err)
	}
	sources := strings.TrimSpace(string(folder))
	changed := make(map[string]string)
	for _, e := range edits {
		text, err := os.ReadFile(filepath.Join(sources, e.file))
		if err != nil {
			return err
		}
		changed[e.file] = string(text)
	}
	if err := change(changed); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "upstream-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	return do(work, sources, changed)
}

// printDiff prints the change as git does.
func printDiff(work, sources string, changed map[string]string) error {
	before := make(map[string]string)
	for file := range changed {
		text, err := os.ReadFile(filepath.Join(sources, file))
		if err != nil {
			return err
		}
		before[file] = string(text)
	}
	if err := errors.Join(writeFiles(filepath.Join(work, "a"), before), writeFiles(filepath.Join(work, "b"), changed)); err != nil {
		return err
	}
	c := exec.Command("git", "diff", "--no-index", "--no-prefix", "--stat", "-p", "a", "b")
	c.Dir, c.Stdout, c.Stderr = work, os.Stdout, os.Stderr
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil // there is a difference
	}
	return err
}

func writeFiles(folder string, texts map[string]string) error {
	for name, text := range texts {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.RemoveAll(file); err != nil { // it may be read-only
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// runGo runs a command of go with a changed copy of the sources.
func runGo(work, sources string, changed map[string]string, args []string) error {
	if len(args) < 2 || args[0] != "go" {
		return errors.New("want a command of go, such as: go test k8s.io/kubernetes/pkg/kubelet/pleg")
	}
	clone := filepath.Join(work, "kubernetes")
	if err := os.CopyFS(clone, os.DirFS(sources)); err != nil {
		return fmt.Errorf("copy the kubelet's sources: %w", err)
	}
	setGate(changed, gateTested)
	if err := writeFiles(clone, changed); err != nil {
		return err
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	if err := writeFiles(work, map[string]string{
		"go.mod": string(module) + "\nreplace k8s.io/kubernetes => " + clone + "\n",
		"go.sum": string(sums),
	}); err != nil {
		return err
	}
	c := exec.Command(args[0], append([]string{args[1], "-modfile", filepath.Join(work, "go.mod")}, args[2:]...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}
