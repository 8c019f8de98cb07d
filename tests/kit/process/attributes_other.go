//go:build !linux

package process

import "syscall"

// attributes give the process a process group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
