package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// version and revision are set by the linker in a release (deploy/release/dist.sh).
// Otherwise the build information has them.
var version, revision string

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Long:  "Print the version of the program, the commit if it is known, the version of Go\nand the platform.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			info := buildInfo()
			if output == "json" {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": moduleVersion(info), "commit": commitOf(info), "goVersion": runtime.Version(), "platform": platform,
				})
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), versionLine(info))
			}
			return fail(outputError(err))
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "text", "json")
	return cmd
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// versionLine leaves out the commit if it is unknown, as in a test or a build with
// -buildvcs=false.
func versionLine(info *debug.BuildInfo) string {
	commit := commitOf(info)
	if commit != "" {
		commit = "commit " + commit + ", "
	}
	return fmt.Sprintf("%s %s (%s%s, %s)", Name, moduleVersion(info), commit, runtime.Version(), platform)
}

func moduleVersion(info *debug.BuildInfo) string {
	switch {
	case version != "":
		return version
	case info == nil || info.Main.Version == "":
		return "(devel)"
	}
	return info.Main.Version
}

// commitOf returns the commit that the program was built from, or "".
func commitOf(info *debug.BuildInfo) string {
	if revision != "" || info == nil {
		return revision
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// newBuildMetric returns pleg_build_info, with which queries join the version.
func newBuildMetric(info *debug.BuildInfo) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_build_info",
		Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{
			"version": moduleVersion(info), "revision": commitOf(info), "goversion": runtime.Version(),
		},
	}, func() float64 { return 1 })
}
