// Package fanout compares the dispatcher with the broadcaster of Kubernetes. It is
// in this module to keep apimachinery out of the module that programs import.
package fanout
