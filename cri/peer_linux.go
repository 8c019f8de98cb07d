package cri

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerPID returns the process that listens at the other end of a connection to a unix socket; 0 if
// it is not known, as in another pid namespace.
func peerPID(conn net.Conn) int {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(credentials.Pid)
		}
	})
	return pid
}
