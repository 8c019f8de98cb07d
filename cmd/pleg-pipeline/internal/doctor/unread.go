package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// Socket is one end of a connection between unix sockets.
type Socket struct {
	// Path is the path on which the server listens; empty for a client's end.
	Path string
	// Inode identifies this end, Peer the other end.
	Inode, Peer uint32
	// Unread is what was sent to the peer and not read, in bytes of the kernel's memory.
	Unread int
}

// UnreadClient is a client of the runtime that does not read what the runtime sends it.
type UnreadClient struct {
	// PID, Process and State describe its process as proc(5) does; empty if they are not known.
	PID     int    `json:"pid,omitempty"`
	Process string `json:"process,omitempty"`
	State   string `json:"state,omitempty"`
	// Bytes wait for it.
	Bytes int `json:"bytes"`
}

func (c UnreadClient) stopped() bool { return c.State == "T" || c.State == "t" }

// String names the process.
func (c UnreadClient) String() string {
	switch {
	case c.PID == 0:
		return "a client of the runtime"
	case c.stopped():
		return fmt.Sprintf("%s (process %d, stopped)", c.Process, c.PID)
	}
	return fmt.Sprintf("%s (process %d)", c.Process, c.PID)
}

// looks is how often, once a second, a client must have something to read that does not get less.
const looks = 3

// findUnread finds clients of the runtime that do not read. A client of the event stream that is
// stopped blocks containerd once its queue is full: no pod starts any more. Only the kernel knows, and
// only in the network namespace of the runtime.
func (e *examination) findUnread(ctx context.Context) {
	if e.Sockets == nil {
		return
	}
	path := realPath(strings.TrimPrefix(e.Endpoint, "unix://"))
	var unread map[uint32]int // by the inode of the client's end
	for n := range looks {
		now, err := e.unreadOf(path)
		if err != nil {
			return
		}
		for peer, bytes := range unread {
			if now[peer] < bytes {
				delete(now, peer)
			}
		}
		if n > 0 {
			for peer := range now {
				if _, before := unread[peer]; !before {
					delete(now, peer)
				}
			}
		}
		if unread = now; len(unread) == 0 {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	for peer, bytes := range unread {
		c := UnreadClient{Bytes: bytes}
		if c.PID = e.owner(peer); c.PID > 0 {
			if p, _ := process.Read(e.Proc, c.PID); p != nil {
				c.Process, c.State = p.Name, p.State
			}
		}
		e.report.Unread = append(e.report.Unread, c)
	}
}

// unreadOf returns the clients of a socket that have something to read.
func (e *examination) unreadOf(path string) (map[uint32]int, error) {
	all, err := e.Sockets()
	unread := make(map[uint32]int)
	for _, s := range all {
		if s.Unread > 0 && s.Path != "" && realPath(s.Path) == path {
			unread[s.Peer] = s.Unread
		}
	}
	return unread, err
}

// realPath returns a path without symbolic links, such as /var/run.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

// owner returns the process that has a socket; 0 if it is not known.
func (e *examination) owner(inode uint32) int {
	if e.Proc == nil {
		return 0
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	files, _ := fs.Glob(e.Proc, "[0-9]*/fd/*")
	for _, file := range files {
		if target, err := fs.ReadLink(e.Proc, file); err == nil && target == want {
			pid, _, _ := strings.Cut(file, "/")
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	return 0
}

// unread finds clients that do not read. Its summary names the first.
func (e *examination) unread(s *signs) {
	for _, c := range e.report.Unread {
		s.add(c.stopped(), "%v does not read what the runtime sends it (%s unread): a runtime that sends it events waits for it", c, size(c.Bytes))
	}
}

// clientAdvice is what to do about the first of them.
func (e *examination) clientAdvice() string {
	for _, c := range e.report.Unread {
		if c.stopped() {
			return fmt.Sprintf("continue it (kill -CONT %d) or end it", c.PID)
		}
	}
	return verdict.ClientNotReading.Advice()
}
