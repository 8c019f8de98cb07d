// Package lab runs a private containerd on this machine and keeps a ledger of
// everything done to its pods, so that a test can compare the events it saw
// with what really happened.
//
// # Overview
//
// [Start] builds containerd from the sources that e2e/containerd pins, starts
// it with a root, state, sockets, cgroup and bridge of its own, and imports an
// image whose only program pauses, exits, crashes or eats memory on request.
// The methods of [Lab] create pods and end them as a kubelet would, or as a
// fault would; each waits until the runtime has seen the change and enters it
// in the [Ledger].
//
// # Cleaning up
//
// [Lab.Stop] removes the pods, the processes, the mounts, the cgroups, the
// bridge and the folder. A lab whose process was killed is removed by the next
// [Start], which finds its folder unlocked. Labs of different processes live
// side by side.
//
// # Needs
//
// Linux, root, Debian's runc, containernetworking-plugins and iproute2
// (e2e/setup.sh installs them), and the Go toolchain.
package lab
