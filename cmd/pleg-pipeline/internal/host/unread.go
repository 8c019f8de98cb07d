package host

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
)

// Socket is one end of a connection between unix sockets.
type Socket struct {
	// Path is the path on which the server listens; empty for a client's end.
	Path string
	// Inode identifies this end, Peer the other end.
	Inode, Peer uint32
	// Unread is the data sent to the peer and not read, in bytes of the kernel's memory.
	Unread int
}

// readers are the clients of a runtime that have something to read. A client of the event stream
// that does not read blocks containerd once its queue is full: no pod starts any more. Only the
// kernel knows, and only in the network namespace of the runtime.
type readers struct {
	o Options
	// seen contains each client by the inode of its end, until its unread data shrinks.
	seen map[uint32]reader
}

type reader struct {
	since time.Time
	bytes int
	pid   int // 0 until it was looked for, and if it is not known
}

// look returns the clients that have not read for long, those that are stopped first.
func (r *readers) look(now time.Time, long time.Duration) (all []nodestate.Unread) {
	before := r.seen
	r.seen = make(map[uint32]reader)
	sockets, _ := r.o.Sockets() // nil if the sockets are not known
	path := realPath(strings.TrimPrefix(r.o.Endpoint, "unix://"))
	for _, s := range sockets {
		if s.Unread == 0 || s.Path == "" || realPath(s.Path) != path {
			continue
		}
		c, ok := before[s.Peer]
		if !ok || s.Unread < c.bytes {
			c = reader{since: now}
		}
		c.bytes = s.Unread
		if now.Sub(c.since) >= long {
			if c.pid == 0 {
				c.pid = owners(r.o.Proc, s.Peer)[s.Peer]
			}
			client, _ := process.Read(r.o.Proc, c.pid)
			all = add(all, nodestate.Unread{Since: c.since, Client: client, Bytes: c.bytes})
		}
		r.seen[s.Peer] = c
	}
	slices.SortFunc(all, func(a, b nodestate.Unread) int {
		switch stopped := process.Stopped(a.Client); {
		case stopped == process.Stopped(b.Client):
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(b.Bytes, a.Bytes))
		case stopped:
			return -1
		}
		return 1
	})
	return all
}

// add adds a client, or the next connection of a known client.
func add(all []nodestate.Unread, u nodestate.Unread) []nodestate.Unread {
	for n := range all {
		if of := &all[n]; of.Client != nil && u.Client != nil && of.Client.PID == u.Client.PID {
			of.Bytes += u.Bytes
			if u.Since.Before(of.Since) {
				of.Since = u.Since
			}
			return all
		}
	}
	return append(all, u)
}

// realPath returns a path without symbolic links, such as /var/run.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

// owners returns the processes that own sockets, by inode, as far as they are known.
func owners(proc fs.FS, inodes ...uint32) map[uint32]int {
	pids := make(map[uint32]int)
	if proc == nil {
		return pids
	}
	files, _ := fs.Glob(proc, "[0-9]*/fd/*")
	for _, file := range files {
		target, _ := fs.ReadLink(proc, file) // "" if it was closed
		text, isSocket := strings.CutPrefix(target, "socket:[")
		inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32)
		if isSocket && err == nil && slices.Contains(inodes, uint32(inode)) {
			of, _, _ := strings.Cut(file, "/")
			pids[uint32(inode)], _ = strconv.Atoi(of)
		}
	}
	return pids
}

// clients returns the processes that are connected to the runtime, except this one, as far as they are
// known.
func clients(o Options) (names []string) {
	sockets, _ := o.Sockets() // nil if the sockets are not known
	var inodes []uint32
	path := realPath(strings.TrimPrefix(o.Endpoint, "unix://"))
	for _, s := range sockets {
		if s.Path != "" && realPath(s.Path) == path {
			inodes = append(inodes, s.Peer)
		}
	}
	if len(inodes) == 0 {
		return nil
	}
	pids := slices.Sorted(maps.Values(owners(o.Proc, inodes...)))
	for _, pid := range slices.Compact(pids) {
		self, _ := fs.ReadLink(o.Proc, "self") // this process, in the namespace of Proc
		if p, _ := process.Read(o.Proc, pid); p != nil && p.Name != "" && strconv.Itoa(pid) != self {
			names = append(names, fmt.Sprintf("%s (PID %d)", p.Name, pid))
		}
	}
	return names
}
