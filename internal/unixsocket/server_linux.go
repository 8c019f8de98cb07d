package unixsocket

import (
	"net"

	"golang.org/x/sys/unix"
)

// Server returns the process that listens on the socket to which conn is connected, in the pid
// namespace of this process; 0 if it is not known. The process may not accept at all.
func Server(conn net.Conn) (pid int) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
