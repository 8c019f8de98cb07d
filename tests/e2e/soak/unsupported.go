//go:build !linux

// Command soak soaks the program beside a real containerd, on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "soak: containerd runs on Linux only")
	os.Exit(1)
}
