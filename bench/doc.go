// Package bench has the Go benchmarks of the pipeline's hot steps. The folders
// below have the benchmark of whole relists: harness starts a node, which serves a
// simulated runtime, and a client, which runs the pipeline or the serial baseline,
// or kubelet, which runs the kubelet's own relist.
package bench
