// Package control is the protocol between the benchmark and the processes it
// measures: one JSON object per line on standard input, and one line of answer for
// each on standard output.
//
// There are two kinds. A client runs a candidate (the serial baseline, the
// kubelet's own generator or the pipeline) and takes a [Command]; the node runs
// the simulated container runtime and takes an [Order].
package control
