// Command simulated soaks the program beside a simulated runtime; "make soak" runs it. See
// package soak.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

func main() { os.Exit(soak.Main(start)) }

func start(ctx context.Context, seed uint64) (soak.Node, func(context.Context) error, error) {
	dir, err := os.MkdirTemp("", "pleg-soak-node-")
	if err != nil {
		return nil, nil, fmt.Errorf("simulated node: %w", err)
	}
	n, err := newNode(filepath.Join(dir, "cri.sock"), seed)
	if err == nil {
		err = n.serve(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("simulated node: %w", err), os.RemoveAll(dir))
	}
	return n, func(context.Context) error { return errors.Join(n.stop(), os.RemoveAll(dir)) }, nil
}
