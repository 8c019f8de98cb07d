// Package cri is the client of a container runtime that speaks CRI v1 over a
// unix socket, such as containerd or CRI-O. It is the only package that dials.
//
// A [Client] lists all pods with two parallel calls and inspects one pod by the
// ids that the list gave it, never by a second list. It implements
// pleg.Runtime.
//
// What a runtime lists may be incomplete. An item that cannot be placed is
// skipped, counted in pleg_malformed_items_total and logged once; it hides
// nothing else.
//
// # Metrics
//
//   - pleg_runtime_operations_total{operation_type}: calls of the runtime.
//   - pleg_runtime_operations_errors_total{operation_type}: calls that ended
//     with an error, NotFound among them, as the kubelet counts them.
//   - pleg_runtime_operations_duration_seconds{operation_type}: their duration.
//   - pleg_malformed_items_total{reason}: items skipped, once per list.
package cri
