//go:build !linux

package httpserver

import (
	"net"
	"time"
)

// newLobby returns the listener: without epoll, a silent connection costs a goroutine.
func newLobby(l net.Listener, _ int, _ time.Duration) (net.Listener, error) { return l, nil }
