//go:build linux

// Command soak runs the program for a long time on a real containerd whose pods
// change. "make soak" runs it; package tests/soak has the details.
package main

import (
	"context"
	"os"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

func main() { os.Exit(soak.Main(start)) }

func start(ctx context.Context, seed uint64) (soak.Node, func(context.Context) error, error) {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return nil, nil, err
	}
	return newNode(l, seed), l.Stop, nil
}
