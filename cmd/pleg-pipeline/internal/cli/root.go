package cli

import (
	"github.com/spf13/cobra"
)

const rootLong = `pleg-pipeline reports what happens to the pods of this node: containers that
start, exit and are removed. It does the work of the kubelet's PLEG (Pod
Lifecycle Event Generator).

It lists the pods of a CRI runtime (containerd, CRI-O) once a second, inspects
the pods that changed, several at the same time, and prints the events or serves
them to other programs. It changes nothing in the runtime. To try it without a
runtime:
  pleg-pipeline run --simulate

Exit codes:
  0  the command finished, or SIGINT or SIGTERM ended it, or the reader of its
     output closed it
  1  the command failed: it could not use the runtime, the daemon or an address,
     or it could not write its output
  2  the command line is wrong
  3  "pleg-pipeline doctor" found a problem`

func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:           Name,
		Short:         "Pod lifecycle events of a container runtime",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionLine(buildInfo()),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetArgs(p.Args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.AddCommand(newRun(p), newEvents(p), newPods(p), newDoctor(p), newSimulate(p), newRecord(p), newVersion())
	return root
}
