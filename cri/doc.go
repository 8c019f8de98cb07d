// Package cri is the client of a container runtime that speaks CRI v1 over a
// unix socket, such as containerd or CRI-O. It is the only package that dials.
//
// A [Client] lists all pods with two parallel calls and inspects one pod by the
// ids that the list gave it, never by a second list. It also lists one pod alone
// and follows the runtime's container events. It implements pleg.Runtime,
// pleg.PodLister, pleg.EventWatcher and pleg.Degraded.
//
// # What runtimes differ in
//
// Lists are streamed where the runtime can (CRI v0.37); whether it can is found
// out again with each connection. Where the list of sandboxes is too large to
// send, it is made in portions: by state, and then one by one.
//
// Events take a connection of their own with a window of 16 MiB. A client that
// leaves them unread makes containerd wait, and with it whoever starts a pod. So
// does this process while it is stopped, after some 300 events.
//
// What a runtime lists may be incomplete. An item that lacks something is
// completed from the list before or from the kubelet's labels, and skipped if
// they do not tell either; in any case it is counted in
// pleg_malformed_items_total and logged once, and it hides nothing else.
//
// # Metrics
//
//   - pleg_runtime_operations_total{operation_type}: calls of the runtime.
//   - pleg_runtime_operations_errors_total{operation_type}: calls that ended
//     with an error, NotFound among them, as the kubelet counts them.
//   - pleg_runtime_operations_duration_seconds{operation_type}: their duration.
//   - pleg_malformed_items_total{reason}: malformed items, once per list.
//   - pleg_portioned_lists: 1 while sandboxes are listed in portions.
package cri
