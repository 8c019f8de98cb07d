// Command harness measures the kubelet's relist and the pipeline on the same work, and
// writes the results and the tables of the pages.
//
//	harness [FLAG...] [SCENARIO...]
//
// It measures the scenarios whose names, groups or patterns are given, or all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// settings are the flags. The defaults of the folders are relative to the folder of
// this program's source.
type settings struct {
	root, bin, out, page string
	runs                 int
	compare              bool
}

func main() {
	var s settings
	flag.StringVar(&s.root, "root", "../..", "root of the repository")
	flag.StringVar(&s.bin, "bin", "../.bin", "folder of the measured programs")
	flag.StringVar(&s.out, "out", "../results", "folder of the results")
	flag.StringVar(&s.page, "page", "", "page with generated parts; none if empty")
	flag.IntVar(&s.runs, "runs", 5, "number of runs of each scenario; 0 only writes the page again")
	flag.BoolVar(&s.compare, "compare", false, "measure and print the table of docs/dev/upstream.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures scenarios, and writes the results and the page even if one fails. Earlier
// results of other scenarios stay.
func (s settings) run(ctx context.Context, patterns []string) error {
	chosen, err := choose(patterns)
	if err != nil {
		return err
	}
	table := targetTable
	if s.compare {
		chosen, table = compared(), comparisonTable
	}
	results, err := readResults(s.out)
	if err != nil {
		return err
	}
	b, err := newBench(chosen, s)
	if err != nil {
		return err
	}
	err = errors.Join(b.run(ctx, results), b.close())
	fmt.Printf("\n%s", table(results))
	return errors.Join(err, report(results, s.page))
}
