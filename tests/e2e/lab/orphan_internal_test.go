//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Only a folder that a killed containerd left behind is removed.
func TestRemoveOrphanKeepsNewFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots", "69")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	failed := fmt.Errorf("failed to rename: rename %s %s: file exists", filepath.Join(filepath.Dir(dir), "new-56"), dir)
	var l Lab
	if again := l.removeOrphan(failed); !again {
		t.Error("a folder of the running containerd: not tried again")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a folder of the running containerd is gone: %v", err)
	}
	l.revived.Store(time.Now().Add(time.Minute).UnixNano())
	if again := l.removeOrphan(failed); !again {
		t.Error("an orphan: not tried again")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan still exists: %v", err)
	}
	if l.removeOrphan(errors.New("no such image")) {
		t.Error("another error is tried again")
	}
}
