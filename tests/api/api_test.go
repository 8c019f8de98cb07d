// Package api_test keeps a list of the exported API of each package that docs/operations.md
// promises, so that no change of the API goes unnoticed.
package api_test

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
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
		t.Run(name, func(t *testing.T) {
			kit.Golden(t, "testdata/"+name+".golden", strings.Join(exported(t, name), "\n")+"\n")
		})
	}
	kept, err := filepath.Glob("testdata/*.golden")
	kit.Must(t, err)
	if len(kept) != len(names) {
		t.Errorf("%d lists in testdata of %d packages: %v", len(kept), len(names), names)
	}
}

// exported returns the lines of the exported declarations of a package, without comments and
// bodies; each begins with the first line of its declaration.
func exported(t *testing.T, name string) (all []string) {
	t.Helper()
	dir := filepath.Join(root, name)
	if name == "pipeline" {
		dir = root
	}
	linux := build.Default
	linux.GOOS = "linux"
	pkg, err := linux.ImportDir(dir, 0)
	kit.Must(t, err)
	var decls []string
	for _, name := range pkg.GoFiles {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		kit.Must(t, err)
		noHiddenMethods(t, file)
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			kit.Must(t, format.Node(&text, fset, decl))
			decls = append(decls, text.String())
		}
	}
	slices.Sort(decls)
	for _, decl := range decls {
		head := ""
		for line := range strings.Lines(decl) {
			if len(strings.TrimSpace(line)) > 1 { // not the bracket at the end
				all = append(all, strings.Join(strings.Fields(head+" "+line), " "))
			}
			head = cmp.Or(head, line)
		}
	}
	return all
}

// noHiddenMethods reports exported structs that embed a type that is not exported: the methods of
// this type are exported too, and no list contains them.
func noHiddenMethods(t *testing.T, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		of, _ := spec.Type.(*ast.StructType)
		for i := 0; of != nil && i < len(of.Fields.List); i++ {
			field := of.Fields.List[i]
			name := strings.TrimPrefix(types.ExprString(field.Type), "*")
			if len(field.Names) == 0 && !strings.Contains(name, ".") && !ast.IsExported(name) {
				t.Errorf("%s embeds %s, and so exports its methods", spec.Name, name)
			}
		}
		return false
	})
}
