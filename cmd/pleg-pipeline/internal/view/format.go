package view

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

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

// Kinds returns the kinds of format, the default first.
func Kinds() []Kind { return []Kind{Text, Wide, JSON, YAML, Template} }

// ParseEvents returns the format that s names: a kind, or
// "go-template=TEMPLATE". The template sees the fields of an event by their
// JSON names; the error names a field that does not exist.
func ParseEvents(s string) (Format, error) { return parseFormat(s, pleg.Event{}) }

// ParseFleetEvents is [ParseEvents] for the events of a cluster.
func ParseFleetEvents(s string) (Format, error) { return parseFormat(s, fleet.Event{}) }

// ParsePods is [ParseEvents] for pods.
func ParsePods(s string) (Format, error) {
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
	t, err := template.New("template").Funcs(templateFuncs).Option("missingkey=error").Parse(text)
	if err != nil {
		return Format{}, err
	}
	// A name that is not a field is an error now rather than at the first event.
	// Other errors may be caused by the sample, whose fields are empty.
	if err := t.Execute(io.Discard, fields(sample)); err != nil && strings.Contains(err.Error(), "map has no entry for key") {
		return Format{}, fmt.Errorf("%w\nthe fields are: %s", err, strings.Join(names(sample), ", "))
	}
	blankNil(t.Root)
	return Format{Template, t}, nil
}

// blankNil makes a template print nothing for a nil value, where it would print
// "<no value>": it adds a function to each action that prints.
func blankNil(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			blankNil(child)
		}
	case *parse.IfNode:
		blankNil(n.List)
		blankNil(n.ElseList)
	case *parse.RangeNode:
		blankNil(n.List)
		blankNil(n.ElseList)
	case *parse.WithNode:
		blankNil(n.List)
		blankNil(n.ElseList)
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(orBlank).SetTree(nil).SetPos(n.Pos)},
			})
		}
	}
}

// orBlank is the function that blankNil adds.
const orBlank = "_orBlank"

var templateFuncs = template.FuncMap{orBlank: func(v any) any {
	if v == nil {
		return ""
	}
	return v
}}

// fields returns v as templates see it: a struct is a map by its JSON names, also of
// the fields that JSON omits, a time is a text as in JSON, a nil pointer is nil, and a
// text is printable.
func fields(v any) any { return fieldsOf(reflect.ValueOf(v)) }

// names returns the names of the fields of a struct.
func names(v any) []string {
	return slices.Sorted(maps.Keys(fields(v).(map[string]any)))
}

func fieldsOf(v reflect.Value) any {
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		if at.IsZero() {
			return nil
		}
		return at.Format(time.RFC3339Nano)
	}
	if at, ok := reflect.TypeAssert[fleet.Position](v); ok {
		return at.String()
	}
	switch v.Kind() {
	case reflect.String:
		return Printable(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return fieldsOf(v.Elem())
	case reflect.Slice:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = fieldsOf(v.Index(i))
		}
		return items
	case reflect.Struct:
		values := make(map[string]any, v.NumField())
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Anonymous { // JSON has its fields in the struct around it
				maps.Copy(values, fieldsOf(v.Field(i)).(map[string]any))
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			values[name] = fieldsOf(v.Field(i))
		}
		return values
	default:
		return v.Interface()
	}
}
