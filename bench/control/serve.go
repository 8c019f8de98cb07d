package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// MaxLine bounds one line, in bytes. The log of a long churn is the longest.
const MaxLine = 64 << 20

// Serve answers every line of in on out until in ends. It returns an error if a
// line is not a message or an answer cannot be written.
func Serve[In, Out any](in io.Reader, out io.Writer, handle func(In) Out) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, MaxLine)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var message In
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return fmt.Errorf("control message %q: %w", lines.Text(), err)
		}
		if err := answers.Encode(handle(message)); err != nil {
			return fmt.Errorf("answer control message: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read control messages: %w", err)
	}
	return nil
}
