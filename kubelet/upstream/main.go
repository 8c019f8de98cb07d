// Command upstream applies the patches in this folder to a copy of the kubelet's sources, and runs
// a command of go with that copy in place of the original:
//
//	upstream go test -race k8s.io/kubernetes/pkg/kubelet/pleg
//
// It runs in the folder of any module that requires k8s.io/kubernetes and replaces k8s.io/cri-client.
// With -steps 1 or -steps 2 it applies only that patch. With -write it writes the changed files into
// a folder instead. The paths are those of the kubernetes repository, where git apply takes the
// patches too.
package main

import (
	"bytes"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// features contains the gates. A kubelet ignores a gate of a later release. So the copy gets the release
// in gateTested.
const (
	features   = "pkg/features/kube_features.go"
	gateSent   = `"1.39"), Default: true, PreRelease: featuregate.Beta`
	gateTested = `"1.37"), Default: true, PreRelease: featuregate.Beta`
)

// staged is the folder of the CRI client's module in the kubernetes repository.
const staged = "staging/src/k8s.io/cri-client"

func main() {
	steps := flag.String("steps", "12", "the `numbers` of the patches to apply")
	folder := flag.String("write", "", "write the changed files into this `folder` and exit")
	flag.Parse()
	err := withCopy(*steps, func(clone string) error {
		if *folder != "" {
			return copyChanged(*folder, clone, *steps)
		}
		return runGo(clone, flag.Args())
	})
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && *folder == "" {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// withCopy calls do with the folder of a changed copy of the sources.
func withCopy(steps string, do func(clone string) error) error {
	work, err := os.MkdirTemp("", "upstream-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	clone := filepath.Join(work, "kubernetes")
	for module, to := range map[string]string{"k8s.io/kubernetes": clone, "k8s.io/cri-client": filepath.Join(clone, staged)} {
		sources, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return fmt.Errorf("find the sources of %s: %w", module, err)
		}
		if err := os.CopyFS(to, os.DirFS(strings.TrimSpace(string(sources)))); err != nil {
			return fmt.Errorf("copy the sources of %s: %w", module, err)
		}
	}
	if err := eachPatch(steps, func(patch []byte) error {
		c := exec.Command("git", "apply", "--whitespace=nowarn", "-")
		c.Dir, c.Stdin = clone, bytes.NewReader(patch)
		c.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+work)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("apply a patch; is this another version of Kubernetes? %s", out)
		}
		return nil
	}); err != nil {
		return err
	}
	name := filepath.Join(clone, features)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, bytes.ReplaceAll(text, []byte(gateSent), []byte(gateTested)), 0o600); err != nil {
		return err
	}
	return do(clone)
}

// eachPatch calls do with each patch whose name begins with one of the numbers.
func eachPatch(numbers string, do func(patch []byte) error) error {
	entries, err := patches.ReadDir(".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.Contains(numbers, entry.Name()[:1]) {
			continue
		}
		patch, err := patches.ReadFile(entry.Name())
		if err != nil {
			return err
		}
		if err := do(patch); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return nil
}

var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`)

// copyChanged copies the files that the patches change.
func copyChanged(folder, clone, steps string) error {
	return eachPatch(steps, func(patch []byte) error {
		for _, match := range changedFile.FindAllSubmatch(patch, -1) {
			name := string(match[1])
			text, err := os.ReadFile(filepath.Join(clone, name))
			if err != nil {
				return err
			}
			to := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(to, text, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
}

// runGo runs a command of go in the module of this folder, with the changed copy.
func runGo(clone string, args []string) error {
	if len(args) < 2 || args[0] != "go" {
		return errors.New("want a command of go, such as: go test k8s.io/kubernetes/pkg/kubelet/pleg")
	}
	work := filepath.Dir(clone)
	modfile := filepath.Join(work, "go.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(work, "go.sum")} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
	edit := exec.Command("go", "mod", "edit", "-replace=k8s.io/kubernetes="+clone, "-replace=k8s.io/cri-client="+filepath.Join(clone, staged), modfile)
	if out, err := edit.CombinedOutput(); err != nil {
		return fmt.Errorf("go mod edit: %w\n%s", err, out)
	}
	// The tests of the kubelet need modules that this module does not require.
	c := exec.Command(args[0], append([]string{args[1], "-mod=mod", "-modfile", modfile}, args[2:]...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}
