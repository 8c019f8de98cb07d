package shim

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pidfds follow processes. One system call returns the processes that have ended, and costs the
// same however many run.
type pidfds struct {
	epoll int         // open while there are fds
	fds   map[int]int // by PID
}

func newPidfds() Follower { return &pidfds{fds: make(map[int]int)} }

// Follow implements [Follower].
func (p *pidfds) Follow(pid int) (err error) {
	if _, ok := p.fds[pid]; ok {
		return nil
	}
	if len(p.fds) == 0 {
		if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return fmt.Errorf("follow processes: %w", err)
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		p.fds[pid] = fd
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pid)})
	}
	if err != nil {
		p.Forget(pid)
		return fmt.Errorf("follow process %d: %w", pid, err)
	}
	return nil
}

// Forget implements [Follower].
func (p *pidfds) Forget(pid int) {
	if fd, ok := p.fds[pid]; ok {
		_ = unix.Close(fd) // this also removes the process from the epoll
		delete(p.fds, pid)
	}
	if len(p.fds) == 0 && p.epoll != 0 {
		_ = unix.Close(p.epoll)
		p.epoll = 0
	}
}

// Ended implements [Follower].
func (p *pidfds) Ended() (ended []int) {
	var events [64]unix.EpollEvent
	for len(p.fds) > 0 {
		n, err := unix.EpollWait(p.epoll, events[:], 0)
		if n <= 0 || err != nil { // EINTR: the next look shows them
			break
		}
		for _, e := range events[:n] {
			ended = append(ended, int(e.Fd))
			p.Forget(int(e.Fd))
		}
	}
	return ended
}
