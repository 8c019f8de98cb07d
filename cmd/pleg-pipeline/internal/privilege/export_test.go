//go:build linux

package privilege

// Tried is the environment variable that marks a process that has executed itself.
const Tried = tried
