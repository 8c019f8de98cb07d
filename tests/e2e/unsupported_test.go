//go:build !linux

package e2e_test

import "testing"

func TestNeedsLinux(t *testing.T) {
	t.Fatal("the end-to-end tests run a real containerd: they need Linux and root")
}
