package kit

import (
	"net"
	"path/filepath"
	"testing"
)

// Socket listens on a unix socket until the test ends, and returns its path.
func Socket(t testing.TB) (listener *net.UnixListener, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener, path
}

// AbandonedSocket returns the path of a socket on which no process listens.
func AbandonedSocket(t testing.TB) string {
	t.Helper()
	listener, path := Socket(t)
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	return path
}
