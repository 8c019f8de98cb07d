//go:build !linux

package server

import "net"

// processOf returns 0: the process is not known.
func processOf(net.Conn) int32 { return 0 }
