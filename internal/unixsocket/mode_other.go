//go:build !linux

package unixsocket

import (
	"errors"
	"io/fs"
	"os"
)

// setMode sets the mode of a socket and returns it.
func setMode(path string, mode fs.FileMode) (fs.FileInfo, error) {
	err := os.Chmod(path, mode)
	info, statErr := os.Lstat(path)
	return info, errors.Join(err, statErr)
}
