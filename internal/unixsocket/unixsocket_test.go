package unixsocket_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestModeIsRightFromTheStart watches a socket while it is created. Other users can never connect,
// even if the umask forbids nothing, also not under the first name. The group always can, even if the
// umask forbids it.
func TestModeIsRightFromTheStart(t *testing.T) {
	for _, umask := range []int{0, 0o077} {
		watchMode(t, umask)
	}
}

func watchMode(t *testing.T, umask int) {
	path := filepath.Join(t.TempDir(), "s")
	defer syscall.Umask(syscall.Umask(umask))
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan map[fs.FileMode]int)
	var looked atomic.Bool
	go func() {
		modes := make(map[fs.FileMode]int)
		for ctx.Err() == nil {
			if info, err := os.Lstat(path); err == nil {
				modes[info.Mode()]++
				looked.Store(true)
			}
			if info, err := os.Lstat(path + "~"); err == nil && info.Mode()&0o117 != 0 {
				modes[info.Mode()]++
			}
		}
		seen <- modes
	}()
	for n := 0; n < 2000 || !looked.Load(); n++ { // with one processor the other goroutine may not run for long
		l, err := unixsocket.Listen(t.Context(), path)
		kit.Must(t, err)
		l.Close()
	}
	cancel()
	modes := <-seen
	if n := modes[fs.ModeSocket|0o660]; n == 0 || len(modes) != 1 {
		t.Errorf("umask %#o: modes seen = %v, want only 0660", umask, modes)
	}
}

// TestCloseRemovesOnlyItsOwn closes a listener whose socket somebody replaced.
func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := unixsocket.Listen(t.Context(), path)
	kit.Must(t, err)
	for _, name := range []string{path, path + ".lock"} {
		kit.Must(t, os.Remove(name))
	}
	second, err := unixsocket.Listen(t.Context(), path)
	kit.Must(t, err)
	first.Close()
	if _, err := os.Stat(path + ".lock"); err != nil {
		t.Errorf("the lock of the second socket: %v, want it to be there", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the second socket: %v, want it to be there", err)
	}
	conn.Close()
	second.Close()
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v, want nothing", left, err)
	}
}

// TestListenAndCloseInTurn: a lock that was removed during the wait for it does not count.
func TestListenAndCloseInTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var listening atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				l, err := unixsocket.Listen(t.Context(), path)
				if err != nil {
					if !strings.Contains(err.Error(), "the socket is in use") {
						t.Errorf("Listen() = %v, want success or that it is in use", err)
					}
					continue
				}
				if n := listening.Add(1); n != 1 {
					t.Errorf("%d listen at the same time", n)
				}
				listening.Add(-1)
				l.Close()
			}
		})
	}
	all.Wait()
}

// The server of a connection is known, also if it does not accept. Only a socket of this machine has one.
func TestServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := unixsocket.Listen(t.Context(), path)
	kit.Must(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", path)
	kit.Must(t, err)
	if pid := unixsocket.Server(conn); pid != os.Getpid() {
		t.Errorf("the server is %d, want %d", pid, os.Getpid())
	}
	conn.Close()
	other, end := net.Pipe()
	defer other.Close()
	defer end.Close()
	for what, conn := range map[string]net.Conn{"a pipe": other, "a connection that is closed": conn} {
		if pid := unixsocket.Server(conn); pid != 0 {
			t.Errorf("the server of %s is %d", what, pid)
		}
	}
}

// nobody is a user without files.
const nobody = 65534

// TestListenRejectsBadPaths: a file in the place of the socket or of its lock stays as it is. A
// file behind a link is neither created nor locked.
func TestListenRejectsBadPaths(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	used, err := unixsocket.Listen(t.Context(), path("used"))
	kit.Must(t, err)
	defer used.Close()
	answers, err := net.Listen("unix", path("answers")) // of a program without a lock
	kit.Must(t, err)
	defer answers.Close()
	for _, name := range []string{"stale", "renamed~", "linked"} {
		stale, err := net.Listen("unix", path(name)) // of a process that has ended
		kit.Must(t, err)
		stale.(*net.UnixListener).SetUnlinkOnClose(false)
		stale.Close()
	}
	if err := errors.Join(
		os.WriteFile(path("file"), []byte("precious"), 0o600), os.Symlink(path("used"), path("link")), os.Symlink(path("victim"), path("locked.lock")), os.Symlink(path("victim"), path("linked.lock")), os.Symlink(path("victim"), path("precious~")),
		os.Mkdir(path("sticky"), 0o700), os.Chmod(path("sticky"), 0o777|fs.ModeSticky),
		os.Symlink(path("sticky"), path("run")), os.Mkdir(path("group"), 0o700), os.Chmod(path("group"), 0o775), os.Mkdir(path("open"), 0o700), os.Chmod(path("open"), 0o777),
	); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := unixsocket.Listen(canceled, path("answers")); !errors.Is(err, context.Canceled) || err.Error() != "listen on "+path("answers")+": the socket may be in use: dial unix "+path("answers")+": operation was canceled" {
		t.Errorf("with a context that has ended: %v", err)
	}
	before := openFiles(t)
	for _, tt := range []struct{ path, says string }{
		{path("used"), "the socket is in use: another process listens on it"},
		{path("answers"), "the socket is in use: another process answers on it"},
		{path("file"), "the path exists and is not a socket (-rw-------)"},
		{path("link"), "the path exists and is not a socket (Lrwxrwxrwx)"},
		{path("group"), "the path exists and is not a socket (drwxrwxr-x)"},
		{path("precious"), path("precious~") + ": the path exists and is not a socket (Lrwxrwxrwx)"},
		{path("none/pleg.sock"), "lock the socket: no such file or directory"},
		{path(strings.Repeat("x", 106-len(dir))), "the path has 107 bytes, but the path of a socket may have at most 106"},
		{"", "the path of the socket is empty"},
		{path("locked"), "lock the socket: too many levels of symbolic links"},
		{path("linked"), "lock the socket: too many levels of symbolic links"},
		{path("open/s"), "everybody can replace the socket in " + path("open") + " (drwxrwxrwx): use another folder, or chmod o-w it"},
		{path(strings.Repeat("x", 105-len(dir))), ""},
		{path("stale"), ""},
		{path("renamed"), ""},
		{path("sticky/s"), ""},
		{path("run/s2"), ""}, // as /var/run
		{path("group/s"), ""},
	} {
		l, err := unixsocket.Listen(t.Context(), tt.path)
		if (err == nil) != (tt.says == "") || err != nil && err.Error() != "listen on "+tt.path+": "+tt.says {
			t.Errorf("%s: %v, want an error with the path and %q", tt.path, err, tt.says)
		}
		if err == nil {
			if l.Addr().String() != tt.path || l.Addr().Network() != "unix" {
				t.Errorf("the address of %s is %v", tt.path, l.Addr())
			}
			l.Close()
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, want %d as before", after, before)
	}
	if data, err := os.ReadFile(path("file")); err != nil || string(data) != "precious" {
		t.Errorf("the file: %q, %v, want it unchanged", data, err)
	}
	if info, err := os.Stat(path("used.lock")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lock: %v, %v, want that nobody else can hold it", info, err)
	}
	if _, err := os.Lstat(path("victim")); err == nil {
		t.Error("the file behind the link was created")
	}
	for _, name := range []string{"used", "answers"} {
		conn, err := net.Dial("unix", path(name))
		if err != nil {
			t.Fatalf("the socket in use: %v", err)
		}
		conn.Close()
	}
	if locks, err := filepath.Glob(path("*.lock")); err != nil || !slices.Equal(locks, []string{path("linked.lock"), path("locked.lock"), path("used.lock")}) {
		t.Errorf("the locks %v are left, %v, want none of a socket that was refused", locks, err)
	}
}

func TestListenReportsMissingPermission(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := unixsocket.Listen(t.Context(), path)
	kit.Must(t, err)
	defer l.Close()
	// Nobody can access the folder above.
	kit.Must(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(path, 0), os.WriteFile(filepath.Join(dir, "locked.lock"), nil, 0o600),
		os.Chmod(filepath.Join(dir, "locked.lock"), 0o666), os.Chmod(dir, 0o555)))
	shared := t.TempDir() // as /tmp
	foreign, stale, beside := filepath.Join(shared, "foreign"), filepath.Join(shared, "stale"), filepath.Join(shared, "beside")
	for _, path := range []string{foreign, stale, beside + "~"} { // of a program without a lock
		l, err := net.Listen("unix", path)
		kit.Must(t, err)
		defer l.Close()
		if path == stale {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}
	}
	kit.Must(t, errors.Join(os.Chmod(foreign, 0), os.Chmod(beside+"~", 0), os.Chmod(stale, 0o666), os.Chmod(shared, 0o777|fs.ModeSticky)))
	for path, says := range map[string]string{
		path:                         "the socket belongs to another user: permission denied",
		filepath.Join(dir, "new"):    "lock the socket: permission denied",
		filepath.Join(dir, "locked"): "permission denied",
		foreign:                      "the socket belongs to another user: permission denied",
		beside:                       beside + "~: the socket belongs to another user: permission denied",
		stale:                        "remove the socket of a process that has ended: operation not permitted",
	} {
		if path == stale && os.Getuid() != 0 {
			continue // it belongs to this user
		}
		if err := asNobody(func() error { _, err := unixsocket.Listen(t.Context(), path); return err }); !errors.Is(err, fs.ErrPermission) || err.Error() != "listen on "+path+": "+says {
			t.Errorf("Listen(%s) = %v, want %q", path, err, says)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	kit.Must(t, err)
	return len(files)
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
