// Package unixsocket listens on unix sockets with restricted modes, and replaces a
// socket whose process has ended.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// mode lets the owner and the group connect.
	mode fs.FileMode = 0o660
	// suffix ends the name under which a socket is created.
	suffix = "~"
	// maxPath is the longest path that fits in sockaddr_un on Linux, with the suffix.
	maxPath = 107 - len(suffix)
	// probeTimeout is the time in which the server of an existing socket must
	// accept.
	probeTimeout = time.Second
)

// Listen listens on a unix socket that only its owner and group may use. Closing the listener
// removes the socket, unless another socket took its place. Listen replaces the socket of a process
// that has ended. It returns an error that says why if another process answers on the socket, if
// the path is not a socket, or if permission is denied.
//
// While it listens, a file beside the socket is locked, so only one of two processes can take the
// path.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listen(ctx context.Context, path string) (_ net.Listener, err error) {
	if err := check(path); err != nil {
		return nil, err
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	unfinished := path + suffix
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, unfinished); err != nil {
		return nil, fmt.Errorf("%s: %w", unfinished, err)
	}
	l, created, err := bind(ctx, unfinished)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return nil, errors.Join(fmt.Errorf("rename the socket: %w", cause(err)), os.Remove(unfinished), l.Close())
	}
	return &listener{Listener: l, path: path, created: created, lock: lock}, nil
}

// bind listens on a new socket and sets its mode. Until the mode is set, the socket's name is not
// the one that clients use: with the mode that the umask leaves, a member of the group would be
// refused.
func bind(ctx context.Context, path string) (net.Listener, fs.FileInfo, error) {
	// Fchmod sets the mode before the socket has a name, so that nobody else can
	// connect before Chmod, whatever the umask is.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode)) }), err)
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, nil, cause(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	created, err := setMode(path, mode)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("set the mode of the socket: %w", err), l.Close())
	}
	return l, created, nil
}

// listener removes its socket when it is closed.
type listener struct {
	net.Listener

	path    string
	created fs.FileInfo
	lock    *lock
	once    sync.Once
}

// Addr implements [net.Listener]. The kernel knows the socket under its first name.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.created) {
			_ = os.Remove(l.path) // the next process replaces it
		}
		l.lock.release()
	})
	return l.Listener.Close()
}

// check returns an error if the path can never be a socket's.
func check(path string) error {
	if path == "" {
		return errors.New("the path of the socket is empty")
	}
	if len(path) > maxPath {
		return fmt.Errorf("the path has %d bytes, but the path of a socket may have at most %d", len(path), maxPath)
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err == nil && folder.Mode().Perm()&0o002 != 0 && folder.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("everybody can replace the socket in %s (%v): use another folder, or chmod o-w it", filepath.Dir(path), folder.Mode())
	}
	return nil // acquiring the lock reports a missing folder
}

// removeStale removes the socket of a process that has ended.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cause(err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("the path exists and is not a socket (%v)", info.Mode())
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return errors.New("the socket is in use: another process answers on it")
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove the socket of a process that has ended: %w", cause(err))
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the socket belongs to another user: %w", cause(err))
	default:
		return fmt.Errorf("the socket may be in use: %w", cause(err))
	}
}

// cause strips the path, which the caller adds.
func cause(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}
