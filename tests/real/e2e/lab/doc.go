// Package lab runs a private container runtime on this machine and keeps a history
// of everything done to its pods, so that a test can compare events with what
// really happened.
//
// # Overview
//
// [Start] builds a [Runtime], which is a version of containerd or CRI-O, runs it
// with its own root, state, sockets, cgroup and bridge, and imports an image whose
// only program pauses, exits or uses up memory on request. How the
// runtimes differ is in one table. The methods of [Lab] create pods and
// end them as a kubelet or a fault would do. Each method waits until the runtime
// reports the change and adds it to the [History].
//
// # Cleaning up
//
// [Lab.Stop] removes the pods, processes, mounts, cgroups, the bridge and the
// folder. If a process is killed, the next [Start] removes its lab, which it
// recognizes by the unlocked folder. Labs of several processes may run at the same
// time.
//
// # Requirements
//
// Linux, root, Go, and Debian's packages that tests/real/e2e/setup.sh installs: runc,
// containernetworking-plugins and iproute2, and more for CRI-O.
package lab
