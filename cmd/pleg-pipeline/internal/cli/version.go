package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Long:  "Print the version of the program, the commit if it is known, the version of Go\nand the platform.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine(buildInfo()))
			return fail(outputError(err))
		},
	}
}

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// versionLine leaves out the commit if it is unknown, as in a test or a build with
// -buildvcs=false.
func versionLine(info *debug.BuildInfo) string {
	commit := ""
	if info != nil {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = "commit " + s.Value + ", "
			}
		}
	}
	return fmt.Sprintf("%s %s (%s%s, %s/%s)", Name, moduleVersion(info), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func moduleVersion(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
