package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// maxLine bounds one line, in bytes. The log of a long churn is the longest.
const maxLine = 64 << 20

// Serve answers every line of in on out until in ends or handle returns stop,
// whose answer is still written. It returns an error if a line is not a message
// or an answer cannot be written.
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
