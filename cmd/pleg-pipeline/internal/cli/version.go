package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// version and revision are set by the linker in a release (deploy/release/dist.sh).
// Otherwise they come from the build information.
var version, revision string

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Long:  "Print the version of the program, the commit if it is known, the version of Go\nand the platform.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output == "json" {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": programVersion(), "commit": programCommit(), "goVersion": runtime.Version(), "platform": platform,
				})
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			}
			return fail(outputError(err))
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "text", "json")
	return cmd
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

// versionLine leaves out the commit if it is unknown, as in a test or a build with
// -buildvcs=false.
func versionLine() string {
	commit := programCommit()
	if commit != "" {
		commit = "commit " + commit + ", "
	}
	return fmt.Sprintf("%s %s (%s%s, %s)", Name, programVersion(), commit, runtime.Version(), platform)
}

func programVersion() string {
	info, _ := debug.ReadBuildInfo()
	of, _ := buildOf(info)
	return of
}

// programCommit returns the commit that the program was built from, or "".
func programCommit() string {
	info, _ := debug.ReadBuildInfo()
	_, commit := buildOf(info)
	return commit
}

// buildOf returns the version and the commit of a release, or those of the build information, which may be nil.
func buildOf(info *debug.BuildInfo) (of, commit string) {
	info = cmp.Or(info, new(debug.BuildInfo))
	if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }); i >= 0 {
		commit = info.Settings[i].Value
	}
	return cmp.Or(version, info.Main.Version, "(devel)"), cmp.Or(revision, commit)
}

// newBuildMetric returns pleg_build_info, with which queries join the version.
func newBuildMetric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_build_info",
		Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{
			"version": programVersion(), "revision": programCommit(), "goversion": runtime.Version(),
		},
	}, func() float64 { return 1 })
}
