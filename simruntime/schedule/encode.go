package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxBytes bounds a file: some 100 000 steps.
const maxBytes = 16 << 20

// file is the outer form of a schedule.
type file struct {
	Version int `json:"version"`
	Schedule
}

// Encode writes the schedule as JSON, with a line for each pod, step and fault.
// It writes nothing if the schedule is not valid.
func (s *Schedule) Encode(w io.Writer) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("encode schedule: %w", err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\"version\": %d, \"seed\": %d", FormatVersion, s.Seed)
	if s.Latency != "" {
		fmt.Fprintf(&out, ", \"latency\": %q", s.Latency)
	}
	for _, err := range []error{
		writeLines(&out, "pods", s.Pods), writeLines(&out, "steps", s.Steps), writeLines(&out, "faults", s.Faults),
	} {
		if err != nil {
			return fmt.Errorf("encode schedule: %w", err)
		}
	}
	out.WriteString("}\n")
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("encode schedule: %w", err)
	}
	return nil
}

func writeLines[T any](out *bytes.Buffer, name string, elements []T) error {
	fmt.Fprintf(out, ",\n%q: [", name)
	for i, e := range elements {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n  ")
		out.Write(line)
	}
	out.WriteByte(']')
	return nil
}

// Decode reads what [Schedule.Encode] has written, or a person: the order of the
// fields and the line breaks do not matter. A field that is not known is an
// error, as a fault that is not played would mislead.
func Decode(r io.Reader) (*Schedule, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	s, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return s, nil
}

func decode(data []byte) (*Schedule, error) {
	switch {
	case len(data) > maxBytes:
		return nil, fmt.Errorf("it is longer than %d bytes", maxBytes)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("it is empty")
	}
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, notJSON(data, err)
	}
	switch {
	case head.Version == nil:
		return nil, errors.New(`it has no "version": this is not the file of a schedule`)
	case *head.Version > FormatVersion:
		return nil, fmt.Errorf("it has version %d and was made by a newer program: this one knows version %d", *head.Version, FormatVersion)
	case *head.Version != FormatVersion:
		return nil, fmt.Errorf("it has version %d: there is only %d", *head.Version, FormatVersion)
	}
	var f file
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return nil, notJSON(data, err)
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return &f.Schedule, nil
}

// notJSON says in which line the JSON is wrong, if that is known.
func notJSON(data []byte, err error) error {
	var offset int64
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if field, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = field.Offset
	} else {
		return err
	}
	line := 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
	return fmt.Errorf("line %d: %w", line, err)
}
