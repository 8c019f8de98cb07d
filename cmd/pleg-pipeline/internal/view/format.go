package view

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Kind is a kind of [Format].
type Kind string

// The kinds.
const (
	// Text prints columns, Wide more of them.
	Text Kind = "text"
	Wide Kind = "wide"
	// JSON prints one object per line.
	JSON Kind = "json"
	// YAML prints one document per value.
	YAML Kind = "yaml"
	// Template executes a Go template for each value and adds a line break.
	Template Kind = "go-template"
)

// Format is a way to print events or pods. The zero value is text.
type Format struct {
	kind     Kind
	template *template.Template
}

// Kind returns the kind of the format.
func (f Format) Kind() Kind {
	if f.kind == "" {
		return Text
	}
	return f.kind
}

// ParseEventFormat returns the format that s names: a kind, or "go-template=TEMPLATE".
// The template sees the fields of an event by their JSON names; the error names a field
// that does not exist. A field that only a cluster has, such as node, is empty on a node.
func ParseEventFormat(s string) (Format, error) { return parseFormat(s, fleet.Event{}) }

// ParsePodFormat is [ParseEventFormat] for pods.
func ParsePodFormat(s string) (Format, error) {
	return parseFormat(s, Pod{
		Containers: make([]Container, 1), Sandboxes: make([]Sandbox, 1), LastEvent: &pleg.Event{},
		Inspection: &Inspection{}, Quarantine: &Quarantine{},
	})
}

func parseFormat(s string, sample any) (Format, error) {
	text, isTemplate := strings.CutPrefix(s, string(Template)+"=")
	switch kind := Kind(s); {
	case isTemplate:
		return parseTemplate(text, sample)
	case kind == Template:
		return Format{}, errors.New("want go-template=TEMPLATE, such as go-template={{.podName}}")
	case kind == Text, kind == Wide, kind == JSON, kind == YAML:
		return Format{kind: kind}, nil
	}
	return Format{}, errors.New("want text, wide, json, yaml or go-template=TEMPLATE")
}

func parseTemplate(text string, sample any) (Format, error) {
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return Format{}, err
	}
	// A name that is not a field is an error now rather than at the first event.
	// Other errors may be caused by the sample, whose fields are empty.
	known := fields(reflect.ValueOf(sample)).(map[string]any)
	if err := t.Execute(io.Discard, known); err != nil && strings.Contains(err.Error(), "map has no entry for key") {
		return Format{}, fmt.Errorf("%w\nthe fields are: %s", err, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return Format{Template, t}, nil
}

// noValue is what a template prints for nil.
const noValue = "<no value>"

// execute returns the output of the template for v. A value that is missing is empty.
func (f Format) execute(v any) (string, error) {
	var b strings.Builder
	if err := f.template.Execute(&b, fields(reflect.ValueOf(v))); err != nil {
		return "", err
	}
	return strings.ReplaceAll(b.String(), noValue, ""), nil
}

// fields returns v as templates see it: a struct is a map by its JSON names, also of the
// fields that JSON omits, a time is a text as in JSON, what has no value is nil, and a
// text is printable.
func fields(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		return fields(v.Elem())
	}
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		text, err := m.MarshalText()
		if v.IsZero() || err != nil {
			return nil
		}
		return string(text)
	}
	switch v.Kind() {
	case reflect.String:
		return Printable(v.String())
	case reflect.Slice:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = fields(v.Index(i))
		}
		return items
	case reflect.Struct:
		values := make(map[string]any, v.NumField())
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Anonymous { // JSON has its fields in the struct around it
				maps.Copy(values, fields(v.Field(i)).(map[string]any))
				continue
			}
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
				values[name] = fields(v.Field(i))
			}
		}
		return values
	case reflect.Map:
		values := make(map[string]any, v.Len())
		for key, value := range v.Seq2() {
			values[Printable(key.String())] = fields(value)
		}
		return values
	default:
		return v.Interface()
	}
}
