package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// maxLine bounds one line in bytes; the log of a long churn is the longest.
const maxLine = 64 << 20

// Serve answers every line of in on out until in ends or handle says to stop.
// The answer to the last line is written too. An error means that a line was
// not a message or that out is gone.
func Serve[In, Out any](in io.Reader, out io.Writer, handle func(In) (answer Out, stop bool)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var message In
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return fmt.Errorf("control message %q: %w", lines.Text(), err)
		}
		answer, stop := handle(message)
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("answer control message: %w", err)
		}
		if stop {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read control messages: %w", err)
	}
	return nil
}
