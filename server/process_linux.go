package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// processOf returns the process at the other end of a unix socket; nil if it is not known, or
// lives in a PID namespace that this process does not see.
func processOf(conn net.Conn) (process any) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && peer.Pid != 0 {
			process = peer.Pid
		}
	})
	return process
}
