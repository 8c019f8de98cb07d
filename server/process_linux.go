package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// processOf returns the process at the other end of a unix socket; 0 if it is not known, or
// lives in a PID namespace that this process does not see.
func processOf(conn net.Conn) (pid int32) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = peer.Pid
		}
	})
	return pid
}
