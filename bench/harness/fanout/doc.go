// Package fanout holds the benchmark of the dispatcher beside the broadcaster of
// Kubernetes. It is in this module to keep apimachinery's dependencies out of
// the one that people import.
package fanout
