//go:build linux

package containerindex

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
)

// Without the capability to open a file handle, the inode finds the cgroup.
func TestPathOfInode(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "kubepods", "pod1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	x := NewIndex(Source{})
	if path, err := x.pathOfInode(t.Context(), root, inode); err != nil || path != "/kubepods/pod1" {
		t.Errorf("path %q, %v", path, err)
	}
	if path, err := x.pathOfInode(t.Context(), root, 1<<60); !errors.Is(err, lookup.ErrNoContainer) || err.Error() != "no container of this node: the cgroup does not exist" {
		t.Errorf("an inode that is not there: %q, %v", path, err)
	}
	if path, err := x.pathOfInode(t.Context(), filepath.Join(root, "gone"), inode); !errors.Is(err, lookup.ErrNoContainer) {
		t.Errorf("cgroups that go during the search: %q, %v", path, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if path, err := x.pathOfInode(ended, root, inode); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %q, %v", path, err)
	}
}

// On a node with cgroup v1 alone the error says why: it does not say that there is no such cgroup.
func TestOnlyCgroupsOfV2HaveIDs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu", "unified"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		path, err := Host{Cgroup: root}.pathOfCgroup(t.Context(), NewIndex(Source{}), 1)
		if want := "find the cgroup: " + root + " is not a cgroup v2 hierarchy, only there do cgroups have ids"; err == nil || err.Error() != want {
			t.Errorf("path %q, %v, want that %s", path, err, want)
		}
	}
}

// A process may end between the opening of its file and the reading.
func TestProcessEndsMeanwhile(t *testing.T) {
	for want, cause := range map[string]error{"no container of this node": syscall.ESRCH, "find the cgroup: read /proc/1/cgroup: input/output error": syscall.EIO} {
		path, err := pathIn(iotest.ErrReader(&os.PathError{Op: "read", Path: "/proc/1/cgroup", Err: cause}))
		if err == nil || err.Error() != want || errors.Is(err, lookup.ErrNoContainer) != errors.Is(cause, syscall.ESRCH) {
			t.Errorf("path %q, %v, want %v", path, err, want)
		}
	}
}
