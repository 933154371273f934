package clawbot

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// changing is a package variable that does change, and why nothing is disturbed by it.
var changing = map[string]string{
	"store/pgtest joined": "one Postgres for all tests of a process; the program does not use the package",
	"bench flag.Usage":    "the command's own help, set once before it begins",
}

// Two engines with different settings can live in one process, because nothing is
// kept in package variables: none is assigned, appended to, written through or handed
// out by address after its declaration, and none has a type that is there to change.
//
// Rows: L11.
func TestNoPackageVariableChanges(t *testing.T) {
	found := map[string]bool{}
	for pkg, files := range parsed(t) {
		vars := map[string]bool{}
		declared := map[any]bool{} // where they are declared
		for _, f := range files {
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, spec := range g.Specs {
					v := spec.(*ast.ValueSpec)
					declared[v] = true
					for _, name := range v.Names {
						vars[name.Name] = true
						if kind := typeText(v); strings.Contains(kind, "sync.") || strings.Contains(kind, "atomic.") {
							found[pkg+" "+name.Name] = true
						}
					}
				}
			}
		}
		for _, f := range files {
			unresolved := map[*ast.Ident]bool{}
			for _, id := range f.Unresolved {
				unresolved[id] = true
			}
			imports := map[string]bool{}
			for _, spec := range f.Imports {
				imports[importName(t, spec)] = true
			}
			// root is the package variable that an expression is, or is a part of.
			root := func(e ast.Expr) string {
				for {
					switch x := e.(type) {
					case *ast.ParenExpr:
						e = x.X
					case *ast.StarExpr:
						e = x.X
					case *ast.IndexExpr:
						e = x.X
					case *ast.SliceExpr:
						e = x.X
					case *ast.SelectorExpr:
						if id, ok := x.X.(*ast.Ident); ok && unresolved[id] && imports[id.Name] {
							return id.Name + "." + x.Sel.Name
						}
						e = x.X
					case *ast.Ident:
						ours := unresolved[x] && vars[x.Name] || x.Obj != nil && declared[x.Obj.Decl]
						if ours {
							return x.Name
						}
						return ""
					default:
						return ""
					}
				}
			}
			changed := func(e ast.Expr) {
				if name := root(e); name != "" {
					found[pkg+" "+name] = true
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						changed(left)
					}
				case *ast.IncDecStmt:
					changed(n.X)
				case *ast.RangeStmt:
					if n.Tok == token.ASSIGN {
						changed(n.Key)
						changed(n.Value)
					}
				case *ast.UnaryExpr:
					if _, literal := n.X.(*ast.CompositeLit); n.Op == token.AND && !literal {
						changed(n.X)
					}
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"append", "clear", "copy", "delete"}, f.Name) && unresolved[f] && len(n.Args) > 0 {
						changed(n.Args[0])
					}
				}
				return true
			})
		}
	}
	for name := range found {
		if changing[name] == "" {
			t.Errorf("the package variable %s changes; make it a field of what needs it", name)
		}
	}
	for name := range changing {
		if !found[name] {
			t.Errorf("%s does not change; take it off the list", name)
		}
	}
}

// Adapters translate, check who may speak, and deliver. Their code has no word for a
// tool, a policy or a model, so none of it can run a tool or decide whether one may.
//
// Rows: L144.
func TestAdaptersRunNoTool(t *testing.T) {
	theirs := []string{"Tool", "Toolbox", "Invocation", "Result", "ToolCall", "CallStatus", "Gate", "Question", "Judgement", "Model", "ModelRequest",
		"Hook", "Store", "Step", "Engine", "NewEngine", "Desk", "Bundle"}
	seen := 0
	for pkg, files := range parsed(t) {
		if !strings.HasPrefix(pkg, "channels/") || strings.HasSuffix(pkg, "test") {
			continue
		}
		for _, f := range files {
			seen++
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "agent" && slices.Contains(theirs, s.Sel.Name) {
						t.Errorf("%s uses agent.%s", pkg, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if seen < 10 {
		t.Errorf("%d files of adapters were read", seen)
	}
}

// What exists is listed in cmd/clawbot and nowhere registers itself: no package has a
// function init, and only cmd/clawbot puts tools into a box.
//
// Rows: L4, L11.
func TestNothingRegistersItself(t *testing.T) {
	boxes := 0
	for pkg, files := range parsed(t) {
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s has a function init", pkg)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "NewToolbox" {
					if boxes++; pkg != "cmd/clawbot" && pkg != "bench" {
						t.Errorf("%s makes a toolbox of its own", pkg)
					}
				}
				return true
			})
		}
	}
	if boxes == 0 {
		t.Error("nobody makes a toolbox")
	}
}

// parsed returns the syntax of all files but tests, by package.
func parsed(t *testing.T) map[string][]*ast.File {
	t.Helper()
	out := map[string][]*ast.File{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		out[path.Dir(name)] = append(out[path.Dir(name)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// importName is what a file calls a package, guessed from its path where it says nothing.
func importName(t *testing.T, spec *ast.ImportSpec) string {
	t.Helper()
	if spec.Name != nil {
		return spec.Name.Name
	}
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		t.Fatal(err)
	}
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	return base
}

// typeText is the type of a variable and the value it begins with, as far as types go.
func typeText(v *ast.ValueSpec) string {
	var out strings.Builder
	note := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.SelectorExpr:
				fmt.Fprintf(&out, "%v.%s ", n.X, n.Sel.Name)
			}
			return true
		})
	}
	if v.Type != nil {
		note(v.Type)
	}
	for _, value := range v.Values {
		note(value)
	}
	return out.String()
}
