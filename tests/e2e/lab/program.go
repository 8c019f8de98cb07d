//go:build linux

package lab

import (
	"strconv"
	"time"
)

// Program is what a container does, and how it ends if nothing else ends it.
// On SIGTERM, that is on [Lab.StopContainer], each exits with code 0.
type Program struct {
	args   []string
	code   int32
	reason string
}

// Pause runs until it is stopped.
func Pause() Program { return Program{args: []string{"pause"}, reason: "Completed"} }

// Exit runs until [Lab.Trigger] and ends with this code.
func Exit(code uint8) Program {
	return Program{args: []string{"exit", strconv.Itoa(int(code))}, code: int32(code), reason: exitReason(code)}
}

// ExitAfter ends with this code after a while; [Lab.AwaitDied] must be called
// so that its end is in the ledger.
func ExitAfter(code uint8, after time.Duration) Program {
	p := Exit(code)
	p.args = append(p.args, after.String())
	return p
}

// Panic runs until [Lab.Trigger] and crashes as a Go program does, with code 2.
func Panic() Program { return Program{args: []string{"panic"}, code: 2, reason: "Error"} }

// EatMemory runs until [Lab.Trigger] and then until the kernel kills it. Give
// its container a memory limit.
func EatMemory() Program { return Program{args: []string{"oom"}, code: 137, reason: "OOMKilled"} }

// exitReason is the word of containerd (and of dockershim before it).
func exitReason(code uint8) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}
