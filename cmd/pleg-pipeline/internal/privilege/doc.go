// Package privilege gives up what the program does not need: to talk to the
// socket of a runtime takes its owner or its group, and no capability.
package privilege
