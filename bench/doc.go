// Package bench contains the Go benchmarks of the pipeline's hot steps. The folders
// below contain the benchmark of whole relists: harness serves a simulated runtime and starts
// client, which runs the pipeline, or kubelet, which runs the kubelet's own relist.
package bench
