package unixsocket_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestModeIsRestrictedFromTheStart watches a socket while it is created, under a
// umask that forbids nothing: other users can never connect.
func TestModeIsRestrictedFromTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	defer syscall.Umask(syscall.Umask(0))
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

// TestCloseRemovesOnlyItsOwn closes a listener whose socket somebody replaced.
func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := unixsocket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".lock"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	second, err := unixsocket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
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

// TestOneOfManyListens has many listeners take a stale socket at once.
func TestOneOfManyListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 50 {
		stale, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		stale.(*net.UnixListener).SetUnlinkOnClose(false)
		stale.Close()
		start, results := make(chan struct{}), make(chan net.Listener)
		for range 4 {
			go func() {
				<-start
				l, err := unixsocket.Listen(t.Context(), path)
				if err != nil && !strings.Contains(err.Error(), "the socket is in use") {
					t.Errorf("Listen() = %v, want success or that it is in use", err)
				}
				results <- l
			}()
		}
		close(start)
		var listeners []net.Listener
		for range 4 {
			if l := <-results; l != nil {
				listeners = append(listeners, l)
			}
		}
		if len(listeners) != 1 {
			t.Fatalf("%d listen on the same path, want one", len(listeners))
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("the one that listens: %v", err)
		}
		conn.Close()
		listeners[0].Close()
	}
}

// TestListenAndCloseInTurn: a lock that was removed while it was waited for counts for nothing.
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

// TestLockThatIsALink: a file behind a link in the place of the lock is neither created nor locked.
func TestLockThatIsALink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "s"), filepath.Join(dir, "victim")
	if err := os.Symlink(victim, path+".lock"); err != nil {
		t.Fatal(err)
	}
	if l, err := unixsocket.Listen(t.Context(), path); err == nil {
		l.Close()
		t.Error("listens")
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("the file behind the link was created")
	}
}

// Who can write to the folder could put anything in the place of the socket.
func TestFolderOfEverybodyIsRefused(t *testing.T) {
	for mode, refused := range map[fs.FileMode]bool{0o755: false, 0o775: false, 0o777: true, 0o777 | fs.ModeSticky: false} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		l, err := unixsocket.Listen(t.Context(), filepath.Join(dir, "s"))
		if err == nil {
			l.Close()
		}
		if (err != nil) != refused {
			t.Errorf("%v: %v, want it refused: %v", mode, err, refused)
		}
	}
}
