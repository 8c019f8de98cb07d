// Package lab runs a private container runtime on this machine and keeps a history
// of everything done to its pods, so that a test can compare events with the real changes.
//
// [Start] builds and runs a [Runtime] with its own root, state, sockets, cgroup and bridge. The
// methods of [Lab] create pods and end them as a kubelet or a fault would do. Each waits until the
// runtime reports the change and adds it to the [History].
//
// [Lab.Stop] removes everything. If a process is killed, the next [Start] removes its lab, which it
// recognizes by the unlocked folder. Labs of several processes may run at the same time.
package lab
