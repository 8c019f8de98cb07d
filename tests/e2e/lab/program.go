//go:build linux

package lab

import (
	"strconv"
	"time"
)

// Program is what a container does, and how it ends by itself. On SIGTERM, which
// [Lab.StopContainer] sends, it exits with code 0.
type Program struct {
	args   []string
	code   int32
	reason string
}

// Pause runs until it is stopped.
func Pause() Program { return Program{args: []string{"pause"}, reason: "Completed"} }

// Exit runs until [Lab.Trigger], and then exits with this code.
func Exit(code uint8) Program {
	return Program{args: []string{"exit", strconv.Itoa(int(code))}, code: int32(code), reason: exitReason(code)}
}

// ExitAfter exits with this code after a time. [Lab.AwaitDied] must be called, to
// add the end to the history.
func ExitAfter(code uint8, after time.Duration) Program {
	p := Exit(code)
	p.args = append(p.args, after.String())
	return p
}

// Panic runs until [Lab.Trigger], and then panics, with exit code 2.
func Panic() Program { return Program{args: []string{"panic"}, code: 2, reason: "Error"} }

// EatMemory runs until [Lab.Trigger], and then until the kernel kills it. Its
// container needs a memory limit.
func EatMemory() Program { return Program{args: []string{"oom"}, code: 137, reason: "OOMKilled"} }

// exitReason returns the reason that containerd reports.
func exitReason(code uint8) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}
