//go:build !linux

package privilege

// Drop does nothing: only Linux has capabilities.
func Drop() error { return nil }
