package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/clawbot/clawbot/agent"
)

// TestStories plays every file of testdata/stories: real Postgres, the real
// engine, gate and desk; a model that says what the story says it says, tools
// that write a ledger, and a channel that shows what a person sees.
//
// A story begins with what it is about, then says:
//
//	settings    of the agent, one a line: max_tool_iterations N | turn_timeout DURATION | max_tool_result_chars N | exclude TOOL |
//	            after_denial WORD | ignore_loops_of TOOL | parallel | receipts | progress_after DURATION
//	rules       of the policy, one a line: ACTION TOOL [by USER,…] [quorum N] [for DURATION] [because WORD] [into ARG] [secret yes]
//	            [when CONDITION] (without spaces)
//	new rules   those that count after the step "restart with new rules"
//	hooks       one a line, asked in this order: cancel TOOL because WORD | rewrite TOOL to TOOL ARGS | fail TOOL | panic TOOL |
//	            after TOOL | fail after TOOL
//	model       one answer a line: say TEXT | blank | call TOOL[#ID] ARGS [; TOOL ARGS…] | fail auth|unavailable|refused|strangely
//	script      what happens, one step a line:
//	    USER: TEXT                  somebody writes; what is going on goes on
//	    USER clicks VERB [N]        on the Nth card, once nothing happens by itself any more
//	    USER clicks VERB [N] twice  both clicks at the same moment
//	    USER gives N VALUE          what the Nth card asks for
//	    USER answers N TEXT         what the model gets instead
//	    settle                      wait until nothing happens by itself any more
//	    wait STATUS                 wait until the latest turn has this status
//	    wait for TOOL [N]           wait until it has been started (N times)
//	    let hold go on              end the tools hold and again, which wait for it
//	    restart                     an orderly end of the process, then a start
//	    stop | start                the same, one by one
//	    crash                       the process dies: nothing it does from now on is written
//	    forge result of TOOL        somebody writes into the database
//	    wait for a status line
//	    wait until people see TEXT
//	    USER presses Stop           of the latest turn's status line
//	    refuse cards                the platform takes no cards any more
//
// and what comes of it:
//
//	thread      what people see
//	ledger      what ran
//	history     what the model read in its last request
//	requests    how many messages and tools each model request had
//	audit       kind decision source actor
//	audit args  kind and arguments
//	audit reasons
//	events      the timeline of each turn, with the fields that matter most
//	timeline    the same with every field
//	calls       status of each call
//
// With UPDATE_STORIES=1 the second kind of sections is written from what happened.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			t.Parallel()
			playStory(t, f)
		})
	}
}

func playStory(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range ar.Files {
		sections[f.Name] = string(f.Data)
	}
	b := newBench(t)
	b.configure(sections["settings"])
	b.policy = b.rules(sections["rules"])
	b.newRules = sections["new rules"]
	b.hooks(sections["hooks"])
	b.model.script(t, sections["model"])
	b.start()
	for _, line := range lines(sections["script"]) {
		b.step(line)
	}
	b.settle()
	b.stop()
	update := os.Getenv("UPDATE_STORIES") != ""
	for i, f := range ar.Files {
		got, ok := b.outcome(f.Name)
		switch {
		case !ok:
		case update:
			ar.Files[i].Data = []byte(got)
		default:
			if diff := cmp.Diff(string(f.Data), got); diff != "" {
				t.Errorf("%s: -want +got\n%s", f.Name, diff)
			}
		}
	}
	if update {
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.checkInvariants()
}

// outcome writes one of the sections that say what came of a story.
func (b *bench) outcome(section string) (string, bool) {
	switch section {
	case "thread":
		return b.room.shown(), true
	case "ledger":
		return b.ledger.text(), true
	case "history":
		return b.model.lastRequest(), true
	case "requests":
		return b.model.requestSizes(), true
	case "audit":
		return b.auditText(), true
	case "audit args":
		return b.auditArgs(), true
	case "audit reasons":
		return b.auditReasons(), true
	case "events":
		return b.eventText(), true
	case "timeline":
		return b.timelineText(), true
	case "calls":
		return b.callText(), true
	case "settings", "rules", "new rules", "hooks", "model", "script":
		return "", false
	}
	b.t.Fatalf("there is no section %q", section)
	return "", false
}

// checkInvariants holds after every story, whatever it was about.
func (b *bench) checkInvariants() {
	b.t.Helper()
	ctx := context.Background()
	if v, err := b.db.VerifyAudit(ctx); err != nil || v.Bad != nil {
		b.t.Errorf("audit does not verify: %v %v", v.Bad, err)
	}
	for _, req := range b.model.requests {
		checkHistory(b.t, req.Messages)
	}
	b.checkFacts()
	sessions, err := b.db.Sessions(ctx, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range sessions {
		h, err := b.db.History(ctx, s.ID, 100_000)
		if err != nil {
			b.t.Fatal(err)
		}
		checkHistory(b.t, agent.Repair(h))
		turns, err := b.db.Turns(ctx, s.ID)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, turn := range turns {
			checkTimeline(b.t, turn)
		}
	}
}

// The table of events in docs/lifecycle.md and the timelines of the stories have the
// same events with the same fields.
//
// Rows: L124.
func TestEventsAreAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Events\n")
	table, _, _ = strings.Cut(table, "\n## ")
	quoted := regexp.MustCompile("`([a-z0-9_]+)`")
	documented := map[string][]string{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if name := quoted.FindStringSubmatch(line); len(cells) == 5 && name != nil {
			var fields []string
			for _, f := range quoted.FindAllStringSubmatch(cells[3], -1) {
				fields = append(fields, f[1])
			}
			if name[1] != agent.EventToolBatchStarted {
				fields = append(fields, "tool_name", "tool_call_id")
			}
			slices.Sort(fields)
			documented[name[1]] = fields
		}
	}
	written := map[string][]string{}
	files, err := filepath.Glob("testdata/stories/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ar.Files {
			event := ""
			for _, line := range strings.Split(string(f.Data), "\n") {
				word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch {
				case f.Name != "timeline" || word == "":
				case strings.HasPrefix(line, "    "):
					if !slices.Contains(written[event], word) {
						written[event] = append(written[event], word)
					}
				case strings.HasPrefix(line, "  "):
					event = word
				}
			}
		}
	}
	for _, fields := range written {
		slices.Sort(fields)
	}
	if diff := cmp.Diff(documented, written); diff != "" {
		t.Errorf("-documented +in the timelines of stories\n%s", diff)
	}
}
