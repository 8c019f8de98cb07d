//go:build !linux

package unixsocket

import "net"

// Server returns 0: only Linux says which process listens on a socket.
func Server(net.Conn) int { return 0 }
