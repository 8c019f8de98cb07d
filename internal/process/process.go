// Package process reads what the kernel says of the processes of this node, in /proc. On a system
// without it nothing is known.
package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
)

// Read returns a process and its parent's number. State is empty if it has ended; a zombie has
// ended too. It returns nil if nothing is known. proc is /proc.
func Read(proc fs.FS, pid int) (of *nodestate.Process, parent int) {
	if pid <= 0 {
		return nil, 0
	}
	if _, err := fs.Stat(proc, "self"); err != nil {
		return nil, 0
	}
	stat, _ := fs.ReadFile(proc, fmt.Sprintf("%d/stat", pid)) // empty if it has ended
	return Parse(pid, stat)
}

// Parse does what [Read] does for the text of a file named stat of a process or a thread.
func Parse(pid int, stat []byte) (of *nodestate.Process, parent int) {
	of = &nodestate.Process{PID: pid}
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')') // the name may have any byte
	if from < 0 || to < from {
		return of, 0
	}
	of.Name = string(stat[from+1 : to])
	state, rest, _ := bytes.Cut(bytes.TrimPrefix(stat[to+1:], []byte(" ")), []byte(" "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	parent, err := strconv.Atoi(string(number))
	if err == nil && !bytes.ContainsAny(state, "ZX") {
		of.State = string(state)
	}
	return of, parent
}

// Stopped reports whether a signal or a debugger has stopped a process, which may be nil.
func Stopped(p *nodestate.Process) bool { return p != nil && (p.State == "T" || p.State == "t") }

// Waits reports whether a thread of the process waits in the kernel (state D), such as for a disk.
// The first thread of a program with many shows only its own state.
func Waits(proc fs.FS, pid int) bool {
	threads, _ := fs.ReadDir(proc, fmt.Sprintf("%d/task", pid)) // none if it has ended
	for _, t := range threads {
		stat, _ := fs.ReadFile(proc, path.Join(fmt.Sprint(pid), "task", t.Name(), "stat"))
		if rest, ok := bytes.CutPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" D")); ok && len(rest) > 0 {
			return true
		}
	}
	return false
}
