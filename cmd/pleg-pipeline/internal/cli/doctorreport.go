package cli

import (
	"fmt"
	"io"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
)

// report is one of a node or of a cluster.
type report interface {
	Print(w io.Writer, o doctor.TextOptions) error
	Healthy() bool
}

// printReport prints a report; its error is the exit code of a problem.
func (c *doctorCommand) printReport(r report) error {
	var err error
	if c.output == "json" {
		err = c.encode(r)
	} else {
		err = r.Print(c.process.Out, doctor.TextOptions{
			Width: terminalWidth(c.process.Out), Color: c.process.colorWanted(),
		})
	}
	if err := outputError(err); err != nil {
		return err
	}
	if !r.Healthy() {
		return exit(ExitUnhealthy)
	}
	return nil
}

// answerPlugin prints one line for the node-problem-detector, which reads the exit code. A line
// that changes would be an Event each minute.
func (c *doctorCommand) answerPlugin(r *doctor.Report, err error) error {
	line := "could not examine the node: "
	switch {
	case err != nil:
		line += err.Error()
		err = exit(ExitUsage)
	case r.Healthy():
		line = r.Lasting()
	default:
		line, err = r.Lasting(), exit(ExitFailure)
	}
	if _, err := fmt.Fprintln(c.process.Out, line); err != nil {
		return outputError(err)
	}
	return err
}
