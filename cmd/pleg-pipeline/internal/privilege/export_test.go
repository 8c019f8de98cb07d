//go:build linux

package privilege

// Tried names the mark of a process that has been run anew.
const Tried = tried
