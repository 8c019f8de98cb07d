//go:build !linux

package host

import "errors"

// Sockets returns an error: only Linux lists sockets with what is unread.
func Sockets() ([]Socket, error) { return nil, errors.ErrUnsupported }
