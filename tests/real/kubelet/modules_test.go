//go:build linux

package e2e_test

import (
	"debug/buildinfo"
	"path/filepath"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A kubelet with the drop-in links the modules of a released kubelet, in the same versions. It adds
// the modules that docs/embedding.md names.
func TestSameModules(t *testing.T) {
	released, ours := modules(t, "kubelet-stock"), modules(t, "kubelet-pipeline")
	for module, version := range released {
		if ours[module] != version {
			t.Errorf("%s: the drop-in has %q, the released kubelet %q", module, ours[module], version)
		}
		delete(ours, module)
	}
	for _, added := range []string{"github.com/pleg-pipeline/pleg-pipeline", "github.com/pleg-pipeline/pleg-pipeline/kubelet", "github.com/sourcegraph/conc"} {
		delete(ours, added)
	}
	if len(ours) > 0 {
		t.Errorf("the drop-in adds %v", ours)
	}
}

// modules returns the version of each module that is linked into a program in .bin.
func modules(t *testing.T, program string) map[string]string {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(".bin", program))
	kit.Must(t, err)
	versions := make(map[string]string)
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
		if m.Replace != nil && m.Replace.Version != "" {
			versions[m.Path] = m.Replace.Version
		}
	}
	return versions
}
