// Command harness measures a serial relist, the kubelet's relist and the pipeline
// on the same work, and renders the results as tables, plots and a page.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
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
	root.AddCommand(runCommand(), listCommand(), stepsCommand(), reportCommand(), compareCommand(), reproduceCommand())
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

// places are the folders and files of the benchmark. The defaults are relative to
// the folder of this program's source.
type places struct{ root, bin, out, page string }

func (p *places) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.root, "root", "../..", "root of the repository")
	cmd.Flags().StringVar(&p.bin, "bin", "../.bin", "folder of the measured programs")
	cmd.Flags().StringVar(&p.out, "out", "../results", "folder of the results")
	cmd.Flags().StringVar(&p.page, "page", "", "page with generated parts; none if empty")
}

func reportCommand() *cobra.Command {
	var p places
	cmd := &cobra.Command{
		Use: "report", Short: "Render the results again: tables, plots and the page", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			results, err := readResults(p.out)
			if err == nil {
				err = report(results, p.out, p.page)
			}
			return err
		},
	}
	p.flags(cmd)
	return cmd
}

func stepsCommand() *cobra.Command {
	var p places
	var runs int
	cmd := &cobra.Command{
		Use: "steps", Short: "Run the Go benchmarks of single steps and add them to the results", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results, err := readResults(p.out)
			if err != nil {
				return err
			}
			err = results.measureSteps(cmd.Context(), p.root, runs)
			return errors.Join(err, results.write(p.out), report(results, p.out, p.page))
		},
	}
	p.flags(cmd)
	cmd.Flags().IntVar(&runs, "runs", 5, "number of runs of each benchmark")
	return cmd
}

type runFlags struct {
	places
	set, profiles      string
	runs               int
	candidates         []string
	steps, add, resume bool
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run [SCENARIO...]", Short: "Measure a set, or scenarios by name, group or pattern",
		RunE: func(cmd *cobra.Command, patterns []string) error { return f.run(cmd.Context(), patterns) },
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&f.set, "set", "quick", "quick (minutes) or full (hours)")
	cmd.Flags().IntVar(&f.runs, "runs", 5, "number of runs of each scenario")
	cmd.Flags().StringSliceVar(&f.candidates, "candidates", nil, "measure these instead of each scenario's own")
	cmd.Flags().StringVar(&f.profiles, "profiles", "", "folder for CPU profiles of serial and pipeline")
	cmd.Flags().BoolVar(&f.add, "add", false, "keep earlier results of other scenarios")
	cmd.Flags().BoolVar(&f.resume, "resume", false, "like --add, and skip scenarios that are already measured with these programs")
	cmd.Flags().BoolVar(&f.steps, "steps", true, "also run the Go benchmarks of single steps")
	return cmd
}

// run measures, and writes the results and the report even if a scenario fails.
func (f runFlags) run(ctx context.Context, patterns []string) error {
	chosen, err := choose(f.set, patterns, f.candidates)
	if err != nil {
		return err
	}
	b, err := newBench(chosen, f.runs, f.root, f.bin)
	if err != nil {
		return err
	}
	b.profiles = f.profiles
	var earlier *Results
	if f.add || f.resume {
		earlier, err = readResults(f.out)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, b.close())
		}
	}
	if f.resume && earlier != nil {
		b.skip(earlier)
	}
	// A run takes hours: the results are saved after each scenario.
	b.measured = func(r *Results) error { return r.with(earlier).write(f.out) }
	results, err := b.run(ctx)
	if err == nil && f.steps {
		fmt.Fprintln(os.Stderr, "Go benchmarks of single steps")
		err = results.measureSteps(ctx, f.root, f.runs)
	}
	results = results.with(earlier)
	err = errors.Join(err, results.write(f.out), report(results, f.out, f.page), b.close())
	fmt.Printf("Results are in %s.\n", f.out)
	return err
}
