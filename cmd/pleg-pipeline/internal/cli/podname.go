package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podNames selects pods by UID, NAME or NAMESPACE/NAME. The zero value selects all.
type podNames []string

func (n podNames) wants(uid pleg.PodUID, namespace, name string) bool {
	if len(n) == 0 {
		return true
	}
	return slices.Contains(n, string(uid)) || name != "" && (slices.Contains(n, name) || slices.Contains(n, namespace+"/"+name))
}

// uids returns the names as UIDs if all of them have the form of one, so that the daemon
// can select the events.
func (n podNames) uids() []pleg.PodUID {
	var uids []pleg.PodUID
	for _, name := range n {
		if len(name) != len("00000000-0000-0000-0000-000000000000") || strings.Count(name, "-") != 4 || strings.Trim(name, "0123456789abcdef-") != "" {
			return nil
		}
		uids = append(uids, pleg.PodUID(name))
	}
	return uids
}

// completionTimeout is how long the shell waits for the names of pods.
const completionTimeout = time.Second

// completePods lets the shell complete the names of the pods that the daemon knows.
func (f *sourceFlags) completePods(p Process) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background() // cobra sets none for a completion
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		socket, err := f.findDaemon(ctx, p, logFlags{level: "error", format: "text"}.console(io.Discard))
		if err != nil || socket == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := newClient(p, socket)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = c.Close() }()
		pods, err := daemonSource{c}.pods(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, pod := range pods {
			if full := pod.Namespace + "/" + pod.Name; strings.HasPrefix(full, start) {
				names = append(names, full)
			} else if strings.HasPrefix(pod.Name, start) {
				names = append(names, pod.Name)
			}
		}
		slices.Sort(names)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
