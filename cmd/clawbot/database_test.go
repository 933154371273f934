package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
	"github.com/clawbot/clawbot/store/pgtest"
)

// own gives the world a Postgres of its own, which the test may kill.
func (w *world) own() *pgtest.DedicatedServer {
	w.t.Helper()
	pg := pgtest.Dedicated(w.t)
	db := pg.Empty(w.t)
	for i, v := range w.env {
		if v == "DATABASE_URL="+w.db {
			w.env[i] = "DATABASE_URL=" + db
		}
	}
	w.db = db
	return pg
}

// While the database is away nothing is acknowledged that is not stored, so Slack
// sends it again; the program lives, says so on /readyz, and goes on by itself.
func TestDatabaseIsKilledUnderTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML, slacktest.WithAckTimeout(3*time.Second),
		slacktest.WithRetryDelays(0, time.Second, time.Second, 2*time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second))
	pg := w.own()
	w.model.Each("file", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("The file is there."))
	w.model.Default(modeltest.Echo)
	p := w.serve()
	before := w.ask("file")
	card := w.card(before)
	w.eventually("parked\n", `SELECT status FROM turns`)

	pg.Kill()
	w.waitFor("/readyz says that the database is away", func() bool { r := w.ready(p); return !r.OK && !r.Database.OK })
	if status, body := w.get(p, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	var during []slacktest.Message
	for i := range 5 {
		during = append(during, w.ask(fmt.Sprintf("during %d", i)))
	}
	w.click("U0002", card, "Approve")
	w.whispered("U0002", "Nothing was decided; please try again")
	if n := len(w.slack.Acks()); n > 4 { // the first ask's two events, perhaps an echo, and the click
		t.Errorf("%d acknowledgements", n)
	}
	pg.Start()
	for i, m := range during {
		w.slack.WaitText(t, "C0001", m.TS, fmt.Sprintf("during %d", i))
	}
	w.waitFor("/readyz is good again", func() bool { return w.ready(p).OK })
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", before.TS, "The file is there.")
	w.settled()
	if lost := w.slack.Lost(); len(lost) > 0 {
		t.Errorf("lost: %s", lost[0].Body)
	}
	for i, m := range during {
		if said := w.said(m); len(said) != 1 {
			t.Errorf("message %d was answered with %q", i, said)
		}
	}
	select {
	case <-p.done:
		t.Fatal("the program has ended")
	default:
	}
	p.stop()
}

// The database goes away while turns run, and comes back.
func TestDatabaseRestartsInTheMiddleOfTurns(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site))
	pg := w.own()
	w.model.On("fetch", site.fetch("/held/a"))
	release := make(chan struct{})
	w.model.On("think", modeltest.Text("Thought about it.").Hold(release))
	w.model.Default(modeltest.Echo)
	w.model.Default(func(r modeltest.Request) modeltest.Reply {
		if strings.Contains(r.String(), "fetch") {
			return modeltest.Text("The end of the fetch.")
		}
		return modeltest.Text("Thought about it.")
	})
	p := w.serve()
	fetch, think := w.ask("fetch"), w.ask("think")
	w.click("U0002", w.card(fetch), "Approve")
	<-site.begun
	w.model.WaitRequests(t, 2)
	pg.Kill()
	close(site.release)
	close(release)
	w.waitFor("the loss is noticed", func() bool { return strings.Contains(p.out.String(), "turn interrupted") })
	pg.Start()
	w.slack.WaitText(t, "C0001", think.TS, "Thought about it.")
	w.slack.WaitText(t, "C0001", fetch.TS, "The end of the fetch.")
	w.settled()
	if n := site.hits.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if outcome := w.query(`SELECT outcome FROM tool_calls`); outcome != "unknown\n" && outcome != "succeeded\n" {
		t.Errorf("the call ended as %s", outcome)
	}
	w.must("audit", "verify")
	p.stop()
}

// A database that is not there when the program starts is one line and status 1,
// without the password.
func TestNoDatabaseAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.env = append(w.env, "DATABASE_URL=postgres://clawbot:canary-password@127.0.0.1:1/none?sslmode=disable")
	for _, args := range [][]string{{"serve"}, {"audit", "list"}, {"migrate", "up"}, {"doctor"}} {
		out, errs, status := w.run(args...)
		if status != 1 || strings.Contains(out+errs, "canary-password") || !strings.Contains(out+errs, "database") {
			t.Errorf("%s: status %d\n%s%s", args, status, out, errs)
		}
		if last := lastLine(errs); !strings.HasPrefix(last, "clawbot: ") || strings.Count(errs, "clawbot: ") != 1 {
			t.Errorf("%s: %q", args, errs)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
