package unixsocket_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestModeIsRestrictedFromTheStart watches a socket while it is created, under a
// umask that forbids nothing: other users can never connect.
func TestModeIsRestrictedFromTheStart(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan map[fs.FileMode]int)
	go func() {
		modes := make(map[fs.FileMode]int)
		for ctx.Err() == nil {
			if info, err := os.Lstat(path); err == nil {
				modes[info.Mode()]++
			}
		}
		seen <- modes
	}()
	for range 2000 {
		l, err := unixsocket.Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	cancel()
	modes := <-seen
	if n := modes[fs.ModeSocket|0o660]; n == 0 || len(modes) != 1 {
		t.Errorf("modes seen = %v, want only 0660", modes)
	}
}
