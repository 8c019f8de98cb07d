//go:build !linux

// Command soak needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "soak: containerd runs on Linux only")
	os.Exit(1)
}
