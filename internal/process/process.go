// Package process reads the state of this node's processes from /proc. On a system without /proc
// nothing is known.
package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

// Parse is [Read] for the text of the file stat of a process or a thread.
func Parse(pid int, stat []byte) (of *nodestate.Process, parent int) {
	of = &nodestate.Process{PID: pid}
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')') // the name may contain any byte
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
	threads, _ := fs.ReadDir(proc, fmt.Sprintf("%d/task", pid)) // none if the process has ended
	for _, t := range threads {
		stat, _ := fs.ReadFile(proc, path.Join(fmt.Sprint(pid), "task", t.Name(), "stat"))
		if rest, ok := bytes.CutPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" D")); ok && len(rest) > 0 {
			return true
		}
	}
	return false
}

// Watches returns the sandbox or the container that a shim of containerd or a conmon watches; "" for any other process.
// runc is false for a shim of a runtime that keeps the processes of a container elsewhere.
func Watches(proc fs.FS, p *nodestate.Process) (id pleg.ContainerID, runc bool) {
	if p == nil {
		return "", false
	}
	flag := map[string]string{"containerd-shim": "-id", "conmon": "-c"}[p.Name]
	if flag == "" {
		return "", false
	}
	line, _ := fs.ReadFile(proc, fmt.Sprintf("%d/cmdline", p.PID)) // empty if it has ended
	args := strings.Split(string(line), "\x00")
	at := slices.Index(args, flag)
	if at < 0 || at+1 >= len(args) || slices.Contains(args, "-e") || slices.Contains(args, "--exec-attach") || slices.Contains(args, "start") {
		return "", false
	}
	return pleg.ContainerID(args[at+1]), flag == "-c" || strings.HasSuffix(args[0], "containerd-shim-runc-v2")
}
