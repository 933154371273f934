package clawbot

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// rule is one row of the table in docs/lifecycle.md: what is required, in short, and
// what of it is not there yet. Where nothing is shown, open says why; where a part is
// missing, it begins with "in part: ".
type rule struct {
	name string
	open string
}

const (
	noMCP       = "MCP servers are not in this version"
	noDelegates = "delegates are not in this version"
)

// rules are L1, L2, … in order.
var rules = []rule{
	{name: "a tool has a fixed name, words, schema and owner; a bad definition is refused, a changed one does not run"},
	{name: "a result is success, output and error"},
	{name: "tools have no logging, approval or event path of their own"},
	{name: "a tool enters through one assembly and nowhere else"},
	{name: "same specs in each request of a turn, shared and not copied"},
	{name: "a new tool widens neither consent nor records"},
	{name: "arguments are decoded and checked before a call is judged"},
	{name: "a turn works with one resolved bundle; after a wait the stricter side wins"},
	{name: "every way in is judged alike"},
	{name: "sessions never meet"},
	{name: "no hidden globals: engines do not disturb each other"},
	{name: "another model takes over between requests, never inside a batch"},
	{name: "messages carry where they came from and who wrote them"},
	{name: "the model can call only what is there in this turn"},
	{name: "excluded tools are neither offered nor run"},
	{name: "structured specs for models with calls of their own"},
	{name: "instructions in the prompt only for the text protocol"},
	{name: "strict parsing hides the text protocol"},
	{name: "filter groups decide which MCP tools are seen", open: noMCP},
	{name: "filter groups touch MCP tools alone", open: noMCP},
	{name: "filter groups grant nothing", open: noMCP},
	{name: "deferred MCP tools are found by search", open: noMCP},
	{name: "what was found stays for the turn", open: noMCP},
	{name: "a search runs beside no other call", open: noMCP},
	{name: "a delegate is offered what it can run", open: noDelegates},
	{name: "an MCP server that changes or disappears", open: noMCP},
	{name: "calls of both protocols become the same"},
	{name: "calls keep the model's order"},
	{name: "text around calls is kept"},
	{name: "arguments are kept as the model wrote them"},
	{name: "what only looks like a call is text"},
	{name: "hooks before a call cancel or rewrite it"},
	{name: "missing delivery arguments are filled"},
	{name: "a given value is never overridden"},
	{name: "the delivery of a job is filled part by part"},
	{name: "without a conversation nothing is filled"},
	{name: "an approved marker of the model is cleared"},
	{name: "what is looked up is the name in the end"},
	{name: "the policy decides, then a grant may answer"},
	{name: "identical calls of one answer run once"},
	{name: "a tool sees the marker of consent only after a decision"},
	{name: "what was judged is frozen before anything runs"},
	{name: "nothing runs unjudged"},
	{name: "allow runs at once"},
	{name: "deny never runs"},
	{name: "ask stops the turn, as a row"},
	{name: "ask_input puts a person's value into the call"},
	{name: "a value that is not given: the call does not run"},
	{name: "highest priority first, then the order of the file"},
	{name: "without a rule the default decides"},
	{name: "the stricter of all stages wins"},
	{name: "a decision says action, reason and rule"},
	{name: "a fault of the policy lets nothing through"},
	{name: "required wins over free, by list and by wildcard"},
	{name: "the model hears which refusal it was"},
	{name: "every refusal leaves a record that names its call"},
	{name: "after a refusal the turn goes on"},
	{name: "or ends as degraded, and says so"},
	{name: "or ends as failed, and says so"},
	{name: "the rest of the answer is then skipped, with results"},
	{name: "a no, the clock and nobody to ask are all refusals"},
	{name: "a refused call has no latency"},
	{name: "the terminal asks"},
	{name: "where nobody can be asked nothing runs"},
	{name: "a card with buttons where it was asked"},
	{name: "other doors decide too"},
	{name: "a job asks at its place or is refused"},
	{name: "nobody who may decide: no start"},
	{name: "waiting has an end"},
	{name: "a person answers instead of the tool"},
	{name: "always allow"},
	{name: "who decided, where and why is recorded with the decision"},
	{name: "consent is no proof that a call ran"},
	{name: "only who may decide can decide"},
	{name: "after a yes the call runs, once"},
	{name: "a late decision changes nothing"},
	{name: "the whole of a question can be read"},
	{name: "a waiting turn survives"},
	{name: "every card ends in its final state"},
	{name: "a start is seen before the effect, or nothing runs"},
	{name: "start and result bear the same id"},
	{name: "calls run together only where that is on"},
	{name: "and where more than one can run"},
	{name: "and where none needs consent"},
	{name: "and never more than eight at once", open: "in part: " + noMCP + ", so no search runs alone"},
	{name: "else one after the other, in order"},
	{name: "after a stop the rest is not begun"},
	{name: "what has ended keeps its result, the rest is interrupted or unknown"},
	{name: "one result for each call"},
	{name: "every call comes to an end of its own"},
	{name: "the history stays in order and valid"},
	{name: "a stop closes what is open and nothing else"},
	{name: "what people write meanwhile comes behind the results"},
	{name: "an empty success says so"},
	{name: "results are clean and bounded"},
	{name: "long results keep head and tail"},
	{name: "successful runs may have a receipt"},
	{name: "and nothing else has one"},
	{name: "a receipt is neither consent nor audit"},
	{name: "a receipt holds in its place alone"},
	{name: "hooks after a call change nothing"},
	{name: "a record of each call from preparation on"},
	{name: "a stored result is not worked for twice"},
	{name: "a result of another call is noticed"},
	{name: "calls are followed by their results, in order"},
	{name: "results are no memory"},
	{name: "a tool that fails or breaks down is a result"},
	{name: "event: an answer has calls"},
	{name: "event: each call is judged"},
	{name: "event: a person is asked"},
	{name: "event: the question has ended"},
	{name: "event: each call has ended, once"},
	{name: "event: warning, in the log as well"},
	{name: "events: start and result, for calls that start"},
	{name: "observers are told what starts"},
	{name: "and how it ended"},
	{name: "progress is shown in the conversation"},
	{name: "the same script gives the same timeline, field by field"},
	{name: "events are committed with what they tell of"},
	{name: "executions are timed"},
	{name: "a histogram of calls"},
	{name: "a histogram of batches"},
	{name: "the time is in the record too"},
	{name: "documents and program agree on names"},
	{name: "no secret where people or logs can read it"},
	{name: "secrets are found by name, form and value"},
	{name: "masking is for show; the real bytes run"},
	{name: "what tools hand back is framed as data"},
	{name: "people and model read different texts"},
	{name: "every end of a turn is told"},
	{name: "a last request without tools when steps are used up"},
	{name: "a turn's working time has an end"},
	{name: "a refused call is not asked about over and over"},
	{name: "loop guard: the same call"},
	{name: "loop guard: two calls in turn"},
	{name: "loop guard: no progress"},
	{name: "loop guard: window and exceptions"},
	{name: "calls and questions have limits"},
	{name: "a delegate has fewer tools, never more", open: noDelegates},
	{name: "a delegate has consents of its own", open: noDelegates},
	{name: "a delegate's calls go the same way", open: noDelegates},
	{name: "a delegate's failure is a result", open: noDelegates},
	{name: "work in the background promises nothing", open: noDelegates},
	{name: "adapters run no tool"},
	{name: "settings are checked before anything starts"},
	{name: "the policy's words mean what the documents say"},
	{name: "deleting a session leaves its audit whole"},
	{name: "a change is shown at every front door"},
}

const (
	rowsPage  = "docs/lifecycle.md"
	rowsBegin = "<!-- rows: made by UPDATE_ROWS=1 go test . -run TestRows -->\n"
	rowsEnd   = "<!-- end of rows -->\n"
)

// The table at the end of docs/lifecycle.md is what the tests say of themselves: each
// rule has a line, with the tests and stories that name it, or says why there is none.
// UPDATE_ROWS=1 writes it.
func TestRows(t *testing.T) {
	shown := rowsByTest(t)
	var table strings.Builder
	table.WriteString("| rule | shown by |\n|---|---|\n")
	for i, r := range rules {
		id := fmt.Sprint("L", i+1)
		by := shown[id]
		delete(shown, id)
		partly := strings.HasPrefix(r.open, "in part: ")
		switch {
		case r.open == "" && by == nil:
			t.Errorf("no test or story names %s (%s)", id, r.name)
		case r.open != "" && !partly && by != nil:
			t.Errorf("%s is shown by %s, so it is not open any more; empty its reason", id, strings.Join(by, ", "))
		case partly && by == nil:
			t.Errorf("%s is open in part, and nothing shows the rest", id)
		}
		cells := by
		switch {
		case partly:
			cells = append(cells, "open "+r.open)
		case r.open != "":
			cells = []string{"open: " + r.open}
		}
		fmt.Fprintf(&table, "| %s %s | %s |\n", id, r.name, strings.Join(cells, ", "))
	}
	for id, by := range shown {
		t.Errorf("%s names %s, which is no rule", strings.Join(by, ", "), id)
	}

	page, err := os.ReadFile(rowsPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(page), rowsBegin)
	there, tail, ends := strings.Cut(rest, rowsEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the two marks of the table: %s%s", rowsPage, rowsBegin, rowsEnd)
	}
	if there == table.String() {
		return
	}
	if os.Getenv("UPDATE_ROWS") == "" {
		t.Fatalf("the table in %s is not what the tests say; write it anew with UPDATE_ROWS=1 go test . -run TestRows", rowsPage)
	}
	if err := os.WriteFile(rowsPage, []byte(head+rowsBegin+table.String()+rowsEnd+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	rowsLine = regexp.MustCompile(`(?m)^Rows: (.*)\.$`)
	lineRow  = regexp.MustCompile(`^[FTL][1-9][0-9]*$`)
)

// rowsByTest returns which tests and stories name a rule of the life of a call.
func rowsByTest(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	note := func(where, name, comment string) {
		if n := strings.Count(comment, "Rows:"); n != len(rowsLine.FindAllString(comment, -1)) {
			t.Errorf("%s: %s: a line of rows looks like this: Rows: L5, L16.", where, name)
		}
		for _, m := range rowsLine.FindAllStringSubmatch(comment, -1) {
			for _, id := range strings.Split(m[1], ", ") {
				switch {
				case !lineRow.MatchString(id):
					t.Errorf("%s: %s names %q, which is no row", where, name, id)
				case id[0] == 'L' && !slices.Contains(out[id], name):
					out[id] = append(out[id], name)
				}
			}
		}
	}
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() || file == "rows_test.go":
		case strings.HasSuffix(file, ".txtar"):
			ar, err := txtar.ParseFile(file)
			if err != nil {
				return err
			}
			note(file, "story `"+strings.TrimSuffix(path.Base(file), ".txtar")+"`", string(ar.Comment))
		case strings.HasSuffix(file, "_test.go"):
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			inDocs := 0
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Doc == nil {
					continue
				}
				inDocs += strings.Count(fn.Doc.Text(), "Rows:")
				where := path.Dir(file)
				if where == "." {
					where = "the root"
				}
				note(file, fmt.Sprintf("`%s` in %s", fn.Name.Name, where), fn.Doc.Text())
			}
			all := 0
			for _, c := range f.Comments {
				all += strings.Count(c.Text(), "Rows:")
			}
			if all != inDocs {
				t.Errorf("%s: a line of rows belongs into the comment above a test", file)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range out {
		slices.Sort(by)
	}
	return out
}
