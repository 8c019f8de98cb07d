package cli

import (
	"encoding/json"
	"io"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// printReport prints a report as JSON or as text; its error has the exit code if the report names a
// problem.
func printReport(p Process, format string, report any, text func(io.Writer) error, good bool) error {
	var err error
	if format == "json" {
		encoder := json.NewEncoder(view.JSONWriter(p.Out))
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = text(p.Out)
	}
	if err == nil && !good {
		return exit(ExitUnhealthy)
	}
	return outputError(err)
}
