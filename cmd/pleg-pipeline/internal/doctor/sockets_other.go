//go:build !linux

package doctor

import "errors"

// UnixSockets returns an error: only Linux lists sockets with what is unread.
func UnixSockets() ([]Socket, error) { return nil, errors.ErrUnsupported }
