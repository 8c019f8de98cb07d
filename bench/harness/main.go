// Command harness measures the serial relist, the kubelet's own and the
// pipeline on the same work, and makes tables, plots and a page of the figures.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "harness",
		Short:         "Benchmark of serial and parallel relist",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), listCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the scenarios", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range scenarios() {
				set := "full "
				if s.InQuick {
					set = "quick"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %-50s %s\n", set, s.Name, s.Title)
			}
			return nil
		},
	}
}

type runFlags struct {
	set        string
	runs       int
	candidates []string
	bin, out   string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run [SCENARIO...]", Short: "Measure the set, or the scenarios named by name, group or pattern",
		RunE: func(cmd *cobra.Command, patterns []string) error { return f.run(cmd.Context(), patterns) },
	}
	cmd.Flags().StringVar(&f.set, "set", "quick", "quick (minutes) or full (hours)")
	cmd.Flags().IntVar(&f.runs, "runs", 5, "how often to measure each")
	cmd.Flags().StringSliceVar(&f.candidates, "candidates", nil, "measure these in place of each scenario's own")
	cmd.Flags().StringVar(&f.bin, "bin", "../.bin", "folder of the programs that are measured")
	cmd.Flags().StringVar(&f.out, "out", "../results", "folder for the results")
	return cmd
}

func (f runFlags) run(ctx context.Context, patterns []string) error {
	chosen, err := choose(f.set, patterns, f.candidates)
	if err != nil {
		return err
	}
	b, err := newBench(chosen, f.runs, f.bin)
	if err != nil {
		return err
	}
	defer b.close()
	results, runErr := b.run(ctx)
	if err := results.write(f.out); err != nil {
		return err
	}
	text := markdown(results)
	if err := os.WriteFile(filepath.Join(f.out, "results.md"), []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Println(strings.TrimSpace(text))
	return runErr
}
