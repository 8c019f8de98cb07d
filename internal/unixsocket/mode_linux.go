package unixsocket

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// setMode sets the mode of a socket and returns it. It does not follow a link that another user of
// the folder has put in its place.
func setMode(path string, mode fs.FileMode) (fs.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }() // nothing was written
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("another file took its place (%v)", info.Mode())
	}
	return info, os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}
