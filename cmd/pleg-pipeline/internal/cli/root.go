package cli

import (
	"github.com/spf13/cobra"
)

const rootLong = `pleg-pipeline tells what happens to the pods of this node: containers that
start, die and are removed, as the kubelet's PLEG (Pod Lifecycle Event
Generator) sees them.

It lists the pods of a CRI runtime (containerd, CRI-O) once a second, inspects
those that changed, many at once, and prints the events or serves them to other
programs. It only reads. Without a runtime at hand, try it with:
pleg-pipeline run --simulate

Exit codes:
  0  the command has done its work, was ended by SIGINT or SIGTERM, or nobody
     reads its output any more
  1  it could not do its work: the runtime, the daemon or the address cannot be
     used, or the output cannot be written
  2  the command line is wrong
  3  "pleg-pipeline doctor" has found a problem`

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
