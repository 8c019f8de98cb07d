//go:build linux

// Package e2e_test runs the library and the program against a real containerd
// and compares every event with what was really done to the pods.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// stepTimeout bounds the wait for the events of one step. It is long because
// the machine may be busy; a test that passes never waits for it.
const stepTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	if err := lab.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// startLab runs a lab that is gone when the test ends, on Ctrl-C too.
func startLab(t *testing.T, release lab.Release) (context.Context, *lab.Lab) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, err := lab.Start(ctx, lab.Options{Release: release})
	must(t, err)
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	return ctx, l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
