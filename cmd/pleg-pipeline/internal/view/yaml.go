package view

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode"

	"go.yaml.in/yaml/v2"
)

// yamlPrinter prints one document per value, with the fields of the JSON.
type yamlPrinter[T any] struct{ w io.Writer }

func (*yamlPrinter[T]) Fit([]T) {}

func (p *yamlPrinter[T]) Start() error { return nil }

func (p *yamlPrinter[T]) Print(v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var fields yaml.MapSlice // keeps the order; JSON is YAML
	if err := yaml.Unmarshal(EscapeJSON(text), &fields); err != nil {
		return err
	}
	document, err := yaml.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = p.w.Write(append([]byte("---\n"), bytes.Map(withoutBidi, document)...))
	return err
}

// withoutBidi replaces the characters that change the direction of text: YAML has them as
// they are.
func withoutBidi(r rune) rune {
	if unicode.Is(unicode.Bidi_Control, r) {
		return '?'
	}
	return r
}
