// Package bench holds the Go benchmarks of the pipeline's hot steps. The
// benchmark of whole relists, each candidate in a process of its own, is in the
// folders below: harness runs it, node is the runtime it runs against, client
// and kubelet are what it measures, serial is the baseline.
package bench
