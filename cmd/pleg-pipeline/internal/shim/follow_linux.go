package shim

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pidfds follow processes. One call of the kernel shows which have ended.
type pidfds struct {
	poll []unix.PollFd
	pids []int
	at   map[int]int // in both
}

func newPidfds() Follower { return &pidfds{at: make(map[int]int)} }

// Follow implements [Follower].
func (p *pidfds) Follow(pid int) error {
	if _, ok := p.at[pid]; ok {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("follow process %d: %w", pid, err)
	}
	p.at[pid] = len(p.pids)
	p.pids, p.poll = append(p.pids, pid), append(p.poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return nil
}

// Forget implements [Follower].
func (p *pidfds) Forget(pid int) {
	at, ok := p.at[pid]
	if !ok {
		return
	}
	_ = unix.Close(int(p.poll[at].Fd))
	last := len(p.pids) - 1
	p.pids[at], p.poll[at] = p.pids[last], p.poll[last]
	p.at[p.pids[at]] = at
	p.pids, p.poll = p.pids[:last], p.poll[:last]
	delete(p.at, pid)
}

// Ended implements [Follower].
func (p *pidfds) Ended() (ended []int) {
	if n, err := unix.Poll(p.poll, 0); n <= 0 || err != nil { // EINTR: the next look shows them
		return nil
	}
	for at := range p.poll {
		if p.poll[at].Revents != 0 {
			ended = append(ended, p.pids[at])
		}
	}
	for _, pid := range ended {
		p.Forget(pid)
	}
	return ended
}
