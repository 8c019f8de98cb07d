package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// lock is a locked file beside a socket. The lock ends with its process.
type lock struct{ file *os.File }

// acquire locks the file beside the socket.
func acquire(socket string) (*lock, error) {
	path := socket + ".lock"
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			if _, exists := os.Lstat(socket); exists == nil && errors.Is(err, fs.ErrPermission) {
				return nil, fmt.Errorf("the socket belongs to another user: %w", cause(err))
			}
			return nil, fmt.Errorf("lock the socket: %w", cause(err))
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = file.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, errors.New("the socket is in use: another process listens on it")
			}
			return nil, fmt.Errorf("lock the socket: %w", err)
		}
		// The process that held the lock may have removed the file after it was opened here.
		if l := (&lock{file}); l.isPresent() {
			return l, nil
		}
		_ = file.Close()
	}
}

// isPresent reports whether the path still leads to the locked file.
func (l *lock) isPresent() bool {
	locked, err := l.file.Stat()
	now, statErr := os.Lstat(l.file.Name())
	return err == nil && statErr == nil && os.SameFile(locked, now)
}

// release removes the file and unlocks it.
func (l *lock) release() {
	if l.isPresent() {
		_ = os.Remove(l.file.Name())
	}
	_ = l.file.Close()
}
