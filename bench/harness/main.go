// Command harness measures a serial relist, the kubelet's relist and the pipeline
// on the same work, and renders the results as tables and a page.
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

const usage = `usage: harness COMMAND [FLAG...] [SCENARIO...]

list       lists the scenarios
run        measures a set, or scenarios by name, group or pattern, and reports
report     renders the results: tables and the page
reproduce  measures and prints the tables of docs/upstream.md
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the flags. The defaults of the folders are relative to the folder of
// this program's source.
type settings struct {
	root, bin, out, page string
	set                  string
	runs                 int
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var s settings
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&s.root, "root", "../..", "root of the repository")
	flags.StringVar(&s.bin, "bin", "../.bin", "folder of the measured programs")
	flags.StringVar(&s.out, "out", "../results", "folder of the results")
	flags.StringVar(&s.page, "page", "", "page with generated parts; none if empty")
	flags.StringVar(&s.set, "set", "quick", "quick (minutes) or full (hours)")
	flags.IntVar(&s.runs, "runs", 5, "number of runs of each scenario")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "list":
		return list()
	case "run":
		return s.run(ctx, flags.Args())
	case "report":
		results, err := readResults(s.out)
		if err != nil {
			return err
		}
		return report(results, s.out, s.page)
	case "reproduce":
		return s.reproduce(ctx)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

func list() error {
	for _, s := range scenarios() {
		set := "full "
		if s.InQuick {
			set = "quick"
		}
		fmt.Printf("%s  %-45s %s\n", set, s.Name, s.Title)
	}
	return nil
}

// run measures scenarios, and writes the results and the report even if one fails. Earlier
// results of other scenarios stay.
func (s settings) run(ctx context.Context, patterns []string) error {
	chosen, err := choose(s.set, patterns)
	if err != nil {
		return err
	}
	results, err := readResults(s.out)
	if err != nil {
		return err
	}
	b, err := newBench(chosen, s)
	if err != nil {
		return err
	}
	return errors.Join(b.run(ctx, results), b.close(), results.write(s.out), report(results, s.out, s.page))
}
