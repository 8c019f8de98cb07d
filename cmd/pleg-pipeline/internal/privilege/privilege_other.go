//go:build !linux

package privilege

// Drop does nothing: capabilities are Linux's.
func Drop() error { return nil }
