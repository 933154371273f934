// Package clawbot has no code of its own: the program is in cmd/clawbot. This
// test holds the directions of all dependencies.
package clawbot

import (
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

const module = "github.com/clawbot/clawbot/"

// row is a package with the packages of ours that it may import, and why no other.
type row struct {
	pkg    string
	ours   []string
	reason string
}

var mayImport = []row{
	{"agent", nil, "the centre: everybody speaks its vocabulary, so it can speak nobody else's"},
	{"approval", []string{"agent"}, "no decision may depend on a platform or on a database"},
	{"audit", []string{"agent"}, "pure, so that a chain can be recomputed from an export"},
	{"hooks", []string{"agent"}, "runs programs of the operator and knows neither policy nor storage"},
	{"migrations", nil, "SQL and nothing else"},
	{"telemetry", []string{"agent"}, "the one that knows OpenTelemetry"},
	{"tools", []string{"agent"}, "a tool has no way around the engine: no channel, no store, no approval"},
	{"channels/text", nil, "text in, text out"},
	{"channels/slack", []string{"agent", "channels/text"}, "an adapter knows neither policy nor storage nor other adapters"},
	{"channels/slack/slacktest", nil, "a fake of Slack that knew clawbot would agree with its mistakes"},
	{"channels/terminal", []string{"agent"}, "as the other adapters"},
	{"model/internal/provider", []string{"agent"}, "what providers share"},
	{"model/internal/providertest", []string{"agent", "model/modeltest"}, "the suite that each provider passes"},
	{"model/modeltest", nil, "a fake of the providers that knew clawbot would agree with its mistakes"},
	{"model/anthropic", []string{"agent", "model/internal/provider"}, "no provider knows another"},
	{"model/openai", []string{"agent", "model/internal/provider"}, "no provider knows another"},
	{"receipt", []string{"agent"}, "pure but for its key file"},
	{"model/textproto", []string{"agent"}, "goes around any model"},
	{"model/demo", []string{"agent"}, "a script that needs no provider"},
	{"store", []string{"agent", "approval", "audit", "migrations", "tools"}, "implements the interfaces that these own"},
	{"store/embedded", []string{"store/internal/pgserver"}, "runs Postgres and knows no table"},
	{"store/internal/pgserver", nil, "starts and stops Postgres's programs"},
	{"store/pgtest", []string{"store/internal/pgserver"}, "databases for tests, whatever is in them"},
	{"cmd/clawbot/settings", []string{"agent", "approval", "channels/slack", "hooks", "tools"}, "reads the sections that these own"},
	{"cmd/clawbot", []string{"agent", "approval", "audit", "channels/slack", "channels/terminal", "cmd/clawbot/settings", "hooks",
		"model/anthropic", "model/demo", "model/openai", "model/textproto", "receipt", "store", "store/embedded", "telemetry", "tools"}, "the one place that knows all"},
}

// onlyIn is where a dependency that shapes code may appear. What is behind one
// package can be replaced.
var onlyIn = map[string][]string{
	"github.com/jackc/pgx":              {"store", "store/pgtest"},
	"go.opentelemetry.io":               {"telemetry"},
	"github.com/prometheus":             {"telemetry"},
	"github.com/pressly/goose":          {"store"},
	"github.com/slack-go/slack":         {"channels/slack"},
	"cel.dev/cel-go":                    {"approval"},
	"github.com/robfig/cron":            {"tools"},
	"github.com/santhosh-tekuri":        {"tools"},
	"github.com/anthropics":             {"model/anthropic"},
	"github.com/openai":                 {"model/openai"},
	"github.com/yuin/goldmark":          {"channels/slack"},
	"github.com/alecthomas/kong":        {"cmd/clawbot"},
	"github.com/sethvargo/go-envconfig": {"cmd/clawbot", "cmd/clawbot/settings"},
	"github.com/goccy/go-yaml":          {"channels/slack", "cmd/clawbot/settings"},
}

// Rows: L3, L144.
func TestDependencies(t *testing.T) {
	imports := importsByPackage(t)
	for pkg, list := range imports {
		at := slices.IndexFunc(mayImport, func(r row) bool { return r.pkg == pkg })
		if at < 0 {
			t.Errorf("%s has no row in mayImport", pkg)
			continue
		}
		r := mayImport[at]
		for _, imp := range list {
			if ours, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(r.ours, ours) {
				t.Errorf("%s imports %s, but: %s", pkg, ours, r.reason)
			}
			for dep, places := range onlyIn {
				if strings.HasPrefix(imp, dep) && !slices.Contains(places, pkg) {
					t.Errorf("%s imports %s, which belongs in %s", pkg, imp, strings.Join(places, ", "))
				}
			}
		}
	}
	for _, r := range mayImport {
		if imports[r.pkg] == nil {
			t.Errorf("%s has a row and no code", r.pkg)
		}
	}
}

// importsByPackage reads the imports of all files but tests, for every system.
func importsByPackage(t *testing.T) map[string][]string {
	out := map[string][]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Dir(name)
		if strings.HasPrefix(pkg, "bench") { // beside the product: it may use whatever it measures
			return nil
		}
		if out[pkg] == nil {
			out[pkg] = []string{} // a package without imports is one too
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			out[pkg] = append(out[pkg], imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
