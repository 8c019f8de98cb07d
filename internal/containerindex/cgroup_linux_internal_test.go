//go:build linux

package containerindex

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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
	if path, err := x.pathOfInode(t.Context(), root, 1<<60); !errors.Is(err, lookup.ErrNoContainer) {
		t.Errorf("an inode that is not there: %q, %v", path, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if path, err := x.pathOfInode(ended, root, inode); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %q, %v", path, err)
	}
}
