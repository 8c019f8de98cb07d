//go:build !linux

package host

import "errors"

// Sockets returns an error: only Linux lists sockets with their unread bytes.
func Sockets() ([]Socket, error) { return nil, errors.ErrUnsupported }
