//go:build linux

// Package e2e_test runs the library and the program on a real container runtime and compares every
// event with the lab's changes to the pods. Each test uses a lab of its own. Those whose promises hold on a
// busy machine run in parallel.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
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

// await waits until done returns nil. It returns an error after stepTimeout.
func await(ctx context.Context, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return process.Await(ctx, func(context.Context) error { return done() })
}

var errNotYet = errors.New("not yet")

// eventually returns nil once f returns true, and an error after stepTimeout.
func eventually(ctx context.Context, f func() bool) error {
	return await(ctx, func() error {
		if !f() {
			return errNotYet
		}
		return nil
	})
}
