// Package cri is the client of a container runtime that serves CRI v1 on a unix
// socket, such as containerd or CRI-O. It is the only package that dials a runtime.
//
// A [Client] lists all pods with two parallel calls, and inspects one pod by the ids
// in the list, without a second list. It also lists one pod alone and follows the
// runtime's CRI events. It implements [pleg.Runtime] and all optional interfaces of a runtime.
// [Client.Check] says why a runtime cannot be used; [Client.Conn] is for all other CRI calls.
//
// # Differences between runtimes
//
// If the list of sandboxes is too large to send, the client lists them by state, and then singly; if
// that of containers is, by sandbox. On each connection it asks for the abilities of the runtime
// again.
//
// A malformed item hides no other. The client completes it from the previous list or from the
// kubelet's labels, and skips it if neither contains the missing field. Of an item with text that is
// not UTF-8, only the state is used. It counts the item in pleg_malformed_items_total and logs it
// once.
//
// A container belongs to the sandbox that it names. If the list lacks that sandbox, the client takes
// the pod from an earlier list, or asks for the sandbox. Pods that share a UID are listed apart: the
// first keeps the UID, each other pod is UID@namespace.name while it exists.
package cri
