// Package privilege drops privileges that the program does not need: to use the
// socket of a runtime, it must be its owner or in its group, but needs no
// capability.
package privilege
