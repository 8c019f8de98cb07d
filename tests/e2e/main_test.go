//go:build linux

// Package e2e_test runs the library and the program on a real containerd and
// compares every event with what the lab did to the pods.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// stepTimeout bounds the wait for the events of one step. It is long because
// the machine may be busy.
const stepTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	if err := lab.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually returns nil once f returns true, and an error after stepTimeout.
func eventually(ctx context.Context, f func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !f() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
