// Command writers prints where the kubelet writes to a value that a list of the runtime returns: to
// a field of a runtimeapi.Container or PodSandbox, of their metadata or image, or of a
// kubecontainer.Container or Pod; to an element of a map or slice in one of them; and where it sorts
// or changes a slice of them, or takes an address. It does not follow a map that is assigned or
// passed on. The second step shares these values between lists. It runs in the kubernetes
// repository, or in a copy of its module:
//
//	writers ./cmd/kubelet
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed are the types of the values that a list returns.
var listed = map[string]bool{
	"k8s.io/cri-api/pkg/apis/runtime/v1.Container": true, "k8s.io/cri-api/pkg/apis/runtime/v1.PodSandbox": true,
	"k8s.io/cri-api/pkg/apis/runtime/v1.ContainerMetadata": true, "k8s.io/cri-api/pkg/apis/runtime/v1.PodSandboxMetadata": true,
	"k8s.io/cri-api/pkg/apis/runtime/v1.ImageSpec":      true,
	"k8s.io/kubernetes/pkg/kubelet/container.Container": true, "k8s.io/kubernetes/pkg/kubelet/container.Pod": true,
	"k8s.io/kubernetes/pkg/kubelet/container.ContainerID": true,
}

type pkg struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "writers:", err)
		os.Exit(1)
	}
}

// run lists the packages with their export data, and checks those of the kubelet.
func run() error {
	cmd := exec.Command("go", append([]string{"list", "-trimpath", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exports, packages := map[string]string{}, []pkg{}
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, "k8s.io/kubernetes/pkg/kubelet") || strings.HasPrefix(p.ImportPath, "k8s.io/kubernetes/cmd/kubelet") || strings.HasPrefix(p.ImportPath, "k8s.io/cri-client") {
			packages = append(packages, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range packages {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		conf := types.Config{Importer: imports, Error: func(error) {}}
		_, _ = conf.Check(p.ImportPath, fset, files, info)
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				var targets []ast.Expr
				switch n := n.(type) {
				case *ast.AssignStmt:
					targets = n.Lhs
				case *ast.IncDecStmt:
					targets = []ast.Expr{n.X}
				case *ast.UnaryExpr:
					if n.Op == token.AND {
						targets = []ast.Expr{n.X}
					}
				case *ast.CallExpr:
					name := types.ExprString(n.Fun)
					if strings.HasPrefix(name, "sort.") || strings.HasPrefix(name, "slices.") || name == "delete" || name == "clear" || name == "copy" {
						for _, a := range n.Args {
							if of(info, a, true) || holds(info, a) {
								fmt.Printf("%s: %s\n", pos(fset, n), types.ExprString(n))
								break
							}
						}
					}
				}
				for _, target := range targets {
					if writes(info, target) {
						fmt.Printf("%s: %s\n", pos(fset, n), types.ExprString(target))
					}
				}
				return true
			})
		}
	}
	return cmd.Wait()
}

func pos(fset *token.FileSet, n ast.Node) string {
	p := fset.Position(n.Pos())
	_, rel, _ := strings.Cut(p.Filename, "/pkg/")
	return fmt.Sprintf("%s:%d", rel, p.Line)
}

// writes reports whether an assignment to e changes a listed value.
func writes(info *types.Info, e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		return of(info, e.X, false) || writes(info, e.X) && !isPointer(info, e.X)
	case *ast.IndexExpr:
		return of(info, e.X, true) || inside(info, e.X)
	case *ast.StarExpr:
		return of(info, e.X, false)
	}
	return false
}

// inside reports whether e is a field of a listed value.
func inside(info *types.Info, e ast.Expr) bool {
	s, ok := ast.Unparen(e).(*ast.SelectorExpr)
	return ok && of(info, s.X, false)
}

func isPointer(info *types.Info, e ast.Expr) bool {
	_, ok := info.TypeOf(e).(*types.Pointer)
	return ok
}

// holds reports whether e is a conversion of such a slice, such as byCreated(list).
func holds(info *types.Info, e ast.Expr) bool {
	c, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && len(c.Args) == 1 && of(info, c.Args[0], true)
}

// of reports whether e is a listed value or, if element, a slice of them.
func of(info *types.Info, e ast.Expr, element bool) bool {
	t := info.TypeOf(e)
	if t == nil {
		return false
	}
	if element {
		slice, ok := t.Underlying().(*types.Slice)
		if !ok {
			return false
		}
		t = slice.Elem()
	}
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Pkg() != nil && listed[named.Obj().Pkg().Path()+"."+named.Obj().Name()]
}
