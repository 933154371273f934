package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestStatements prepares every statement of this package against the migrated
// schema. They are found in the source: the argument of each Query, QueryRow, Exec
// and Queue has to be a constant text, so none can be built at run time.
func TestStatements(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	consts := map[string]ast.Expr{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "migrate.go" { // DDL and grants: TestMigrate…, TestServiceRole
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		ast.Inspect(f, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, s := range d.Specs {
					for i, v := range s.(*ast.ValueSpec).Values {
						consts[s.(*ast.ValueSpec).Names[i].Name] = v
					}
				}
			}
			return true
		})
	}
	var text func(e ast.Expr) (string, bool)
	text = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			return s, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			if v, ok := consts[e.Name]; ok {
				return text(v)
			}
		case *ast.BinaryExpr:
			a, ok1 := text(e.X)
			b, ok2 := text(e.Y)
			return a + b, ok1 && ok2 && e.Op == token.ADD
		}
		return "", false
	}

	conn, err := pgx.Connect(t.Context(), migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	found := 0
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			at := map[string]int{"Query": 1, "QueryRow": 1, "Exec": 1, "Queue": 0}
			i, ok := at[sel.Sel.Name]
			if !ok || len(call.Args) <= i { // Exec and Query of a batch's results have no text
				return true
			}
			sql, ok := text(call.Args[i])
			pos := fset.Position(call.Pos())
			if !ok {
				t.Errorf("%s: the statement is not a constant", pos)
				return true
			}
			found++
			if _, err := conn.Prepare(t.Context(), "s"+strconv.Itoa(found), sql); err != nil {
				t.Errorf("%s: %v\n%s", pos, err, sql)
			}
			return true
		})
	}
	if found < 40 {
		t.Errorf("only %d statements were found; has the way to call them changed?", found)
	}
	t.Logf("%d statements", found)
}
