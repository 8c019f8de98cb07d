package server_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// nobody is a user without files.
const nobody = 65534

// internal/unixsocket tests what a listener does.
func TestListenRejectsBadPaths(t *testing.T) {
	dir := t.TempDir()
	used, file, link := filepath.Join(dir, "used"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	l, err := server.Listen(t.Context(), used)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(used, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, says string }{
		{"in use", used, "the socket is in use: another process listens on it"},
		{"a file", file, "not a socket"},
		{"a link", link, "not a socket"},
		{"a directory", dir, "not a socket"},
		{"no directory", filepath.Join(dir, "none", "pleg.sock"), "no such file or directory"},
		{"too long", filepath.Join(dir, strings.Repeat("x", 107-len(dir))), "a unix socket allows 107"},
		{"empty", "", "empty"},
	} {
		if l, err := server.Listen(t.Context(), tt.path); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, %v, want an error with %q", tt.name, l, err, tt.says)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file: %q, %v, want it unchanged", data, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if l, err := server.Listen(t.Context(), file); err != nil {
		t.Errorf("without the file: %v", err)
	} else {
		l.Close()
	}
	if conn, err := net.Dial("unix", used); err != nil {
		t.Errorf("the socket in use: %v", err)
	} else {
		conn.Close()
	}
}

func TestListenReportsMissingPermission(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // so that nobody can access it
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pleg.sock")
	l, err := server.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, mode := range map[string]fs.FileMode{path: 0, dir: 0o555} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{
		path:                      "the socket belongs to another user: permission denied",
		filepath.Join(dir, "new"): "permission denied",
	} {
		if err := asNobody(func() error { _, err := server.Listen(t.Context(), path); return err }); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Listen(%s) = %v, want an error with %q", path, err, says)
		}
	}
}

// asNobody calls do as nobody if the test runs as root.
func asNobody(do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if os.Getuid() == 0 {
			if err := unix.Setfsuid(nobody); err != nil {
				result <- err
				return
			}
		}
		result <- do()
	}()
	return <-result
}
