//go:build !linux

package process

import "syscall"

// attributes make a process group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
