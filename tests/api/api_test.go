// Package api_test keeps a list of the exported API of each package that docs/operations.md
// promises, so that a change of it is a decision.
package api_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const root = "../.."

var promised = regexp.MustCompile(`(?m)^\| packages (.*) \| Go's compatibility promise`)

// If this fails, the change may break programs: see "A change of the API" in CONTRIBUTING.md.
func TestAPI(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	kit.Must(t, err)
	row := promised.FindSubmatch(page)
	if row == nil {
		t.Fatal("docs/operations.md has no row with the packages that stay compatible")
	}
	names := strings.Split(strings.ReplaceAll(string(row[1]), "`", ""), ", ")
	for _, name := range names {
		t.Run(name, func(t *testing.T) { compare(t, "testdata/"+name+".golden", list(t, name)) })
	}
	kept, err := filepath.Glob("testdata/*.golden")
	kit.Must(t, err)
	if len(kept) != len(names) {
		t.Errorf("%d lists in testdata of %d packages: %v", len(kept), len(names), names)
	}
}

// compare reports what a file lacks and what it has too much, or with UPDATE_GOLDEN writes it.
func compare(t *testing.T, file string, got []string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		kit.Must(t, os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644))
	}
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("+ %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("- %s", line)
		}
	}
}

// list returns the exported API of a package, one line for each name, field and method.
func list(t *testing.T, name string) []string {
	t.Helper()
	dir := filepath.Join(root, name)
	if name == "pipeline" {
		dir = root
	}
	linux := build.Default
	linux.GOOS = "linux"
	pkg, err := linux.ImportDir(dir, 0)
	kit.Must(t, err)
	var lines []string
	for _, file := range pkg.GoFiles {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(dir, file), nil, parser.SkipObjectResolution)
		kit.Must(t, err)
		for _, decl := range parsed.Decls {
			lines = append(lines, declared(decl)...)
		}
	}
	slices.Sort(lines)
	return lines
}

func declared(decl ast.Decl) (lines []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			receiver := source(d.Recv.List[0].Type)
			if !ast.IsExported(strings.TrimPrefix(receiver, "*")) {
				return nil
			}
			name = "(" + receiver + ") " + name
		}
		if d.Name.IsExported() {
			lines = append(lines, "func "+name+signature(d.Type))
		}
	case *ast.GenDecl:
		for place, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				lines = append(lines, values(d.Tok, s, place)...)
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, typeLines(s)...)
				}
			}
		}
	}
	return lines
}

// values returns constants with their values, or their place in the list of iota: a program may
// store them.
func values(kind token.Token, s *ast.ValueSpec, place int) (lines []string) {
	for i, name := range s.Names {
		if !name.IsExported() {
			continue
		}
		line := kind.String() + " " + name.Name
		if s.Type != nil {
			line += " " + source(s.Type)
		}
		switch {
		case kind != token.CONST:
		case i < len(s.Values):
			line += " = " + source(s.Values[i])
		default:
			line += fmt.Sprintf(" = the %dth after iota", place)
		}
		lines = append(lines, line)
	}
	return lines
}

func typeLines(s *ast.TypeSpec) (lines []string) {
	head := "type " + s.Name.Name
	var fields *ast.FieldList
	switch underlying := s.Type.(type) {
	case *ast.StructType:
		head, fields = head+" struct", underlying.Fields
	case *ast.InterfaceType:
		head, fields = head+" interface", underlying.Methods
	default:
		if s.Assign.IsValid() {
			head += " ="
		}
		return []string{head + " " + source(s.Type)}
	}
	lines = []string{head}
	for _, field := range fields.List {
		text := " " + source(field.Type)
		if method, ok := field.Type.(*ast.FuncType); ok && head != "type "+s.Name.Name+" struct" {
			text = signature(method)
		}
		if field.Tag != nil {
			text += " " + field.Tag.Value
		}
		for _, name := range field.Names {
			if name.IsExported() {
				lines = append(lines, head+", "+name.Name+text)
			}
		}
		if field.Names == nil {
			lines = append(lines, head+", embedded"+text)
		}
	}
	return lines
}

// signature returns parameters and results by their types: their names may change.
func signature(f *ast.FuncType) string {
	text := "(" + types(f.Params) + ")"
	switch results := types(f.Results); {
	case f.Results.NumFields() > 1:
		text += " (" + results + ")"
	case results != "":
		text += " " + results
	}
	return text
}

func types(fields *ast.FieldList) string {
	if fields == nil {
		return ""
	}
	var all []string
	for _, field := range fields.List {
		for range max(1, len(field.Names)) {
			all = append(all, source(field.Type))
		}
	}
	return strings.Join(all, ", ")
}

// source returns a node on one line.
func source(node ast.Node) string {
	var text bytes.Buffer
	_ = printer.Fprint(&text, token.NewFileSet(), node)
	return strings.Join(strings.Fields(text.String()), " ")
}
