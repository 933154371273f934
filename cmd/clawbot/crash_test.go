package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// site is a web server that counts its requests and can keep them waiting. It is
// the effect of http_fetch that no crash of the program can undo.
type site struct {
	addr    string
	hits    atomic.Int32
	begun   chan string                                       // receives the path of each request
	release chan struct{}                                     // requests under /held wait for it
	perPath sync.Map                                          // path to *atomic.Int32
	serve   func(w http.ResponseWriter, r *http.Request) bool // answers before anything else, if it can
}

func newSite(t *testing.T) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{addr: l.Addr().String(), begun: make(chan string, 1000), release: make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		n, _ := s.perPath.LoadOrStore(r.URL.Path, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		s.begun <- r.URL.Path
		if s.serve != nil && s.serve(w, r) {
			return
		}
		if strings.HasPrefix(r.URL.Path, "/held") {
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprintln(w, "fetched", r.URL.Path)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return s
}

func (s *site) fetch(path string) modeltest.Reply {
	return modeltest.Call("http_fetch", fmt.Sprintf(`{"url":"http://%s%s"}`, s.addr, path))
}

// fetchYAML lets http_fetch reach the site, after Ben's consent.
func fetchYAML(s *site) string {
	return approverYAML + fmt.Sprintf(`
  rules:
    - { name: fetch-asks, tools: ["http_fetch"], action: ask }
tools:
  http_fetch: { allow_hosts: [%q] }
`, s.addr)
}

// Killed after the message was acknowledged and before the model answered: the
// next process answers, once.
//
// Rows: F126.
func TestKilledWhileTheModelThinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	never := make(chan struct{})
	defer close(never)
	w.model.Reply(modeltest.Text("lost").Hold(never), modeltest.Text("Here I am again."))
	p := w.serve()
	ask := w.ask("think")
	w.model.WaitRequests(t, 1)
	w.slack.WaitIdle(t)
	p.kill()
	w.serve()
	w.slack.WaitText(t, "C0001", ask.TS, "Here I am again.")
	w.settled()
	w.want("done 1\n", `SELECT status, iterations FROM turns`)
	if said := w.said(ask); len(said) != 1 {
		t.Errorf("the thread holds %q", said)
	}
}

// Killed with a tool at work: nobody can know whether it took effect, so it is
// unknown, people are told in the thread, and it does not run again.
//
// Rows: F88, L81, L103.
func TestKilledWhileAToolRuns(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site))
	w.model.Reply(site.fetch("/held/a"), modeltest.Text("I cannot tell whether it worked."))
	p := w.serve()
	ask := w.ask("fetch it")
	card := w.card(ask)
	w.click("U0002", card, "Approve")
	<-site.begun
	p.kill()
	w.serve()
	w.slack.WaitText(t, "C0001", ask.TS, "I do not know whether it took effect")
	w.slack.WaitText(t, "C0001", ask.TS, "I cannot tell whether it worked.")
	w.closed(card, "checked by hand")
	w.settled()
	if n := site.hits.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	w.want("unknown\n", `SELECT outcome FROM tool_calls`)
	w.want("tool_started - http_fetch\ntool_finished unknown http_fetch\n",
		`SELECT kind, decision, tool FROM audit_log WHERE kind LIKE 'tool_%' ORDER BY seq`)
	if result := w.model.Requests()[1].Results()[0].Text; !strings.Contains(result, `"outcome":"unknown"`) {
		t.Errorf("the model is told %s", result)
	}
	w.must("audit", "verify")
}

// Decided while no process ran, here by the command line: the next process runs
// it, once, without asking the model again.
//
// Rows: F87, L78.
func TestDecidedWhileDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
approval:
  approvers: { users: ["slack:T0001/U0002"], local: true }
`)
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Written."))
	p := w.serve()
	ask := w.ask("write it")
	card := w.card(ask)
	w.eventually("parked\n", `SELECT status FROM turns`)
	p.kill()
	id, _ := card.Button("Approve")
	w.must("approvals", "approve", id.Value)
	if got := w.wroteFile("a.txt"); got != "" {
		t.Errorf("the command ran the tool: %q", got)
	}
	w.serve()
	w.slack.WaitText(t, "C0001", ask.TS, "Written.")
	w.closed(card, "ran and succeeded")
	w.settled()
	if n := len(w.model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
	w.want("1\n", `SELECT count(*) FROM audit_log WHERE kind = 'tool_started'`)
}

// Killed after Slack has taken a card or an answer and before that was noted:
// neither appears twice.
func TestKilledBeforeAPostIsNoted(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]modeltest.Reply{
		"answer": modeltest.Text("The one answer."),
		"card":   modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			w.model.Reply(reply, modeltest.Text("Written."))
			w.slack.Fail("chat.postMessage", 1, slacktest.DelayAnswer(time.Hour))
			p := w.serve()
			ask := w.ask("go on")
			w.slack.WaitMessage(t, "C0001", ask.TS, slacktest.Message.FromBot)
			p.kill()
			w.serve()
			if name == "card" {
				w.click("U0002", w.card(ask), "Approve")
				w.slack.WaitText(t, "C0001", ask.TS, "Written.")
			}
			w.settled()
			posts := 0
			for _, m := range w.slack.Thread("C0001", ask.TS) {
				if m.FromBot() && !strings.Contains(m.Shown, "Written.") {
					posts++
				}
			}
			if posts != 1 {
				t.Errorf("%d posts:\n%s", posts, w.slack.Render("C0001", ask.TS))
			}
		})
	}
}

// SIGTERM while the model thinks: the process ends in time and with status 0, and
// the next one answers.
func TestTermWhileTheModelThinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	never := make(chan struct{})
	defer close(never)
	w.model.Reply(modeltest.Text("lost").Hold(never), modeltest.Text("Here I am again."))
	p := w.serve()
	ask := w.ask("think")
	w.model.WaitRequests(t, 1)
	p.stop()
	w.serve() // no lease is in the way
	w.slack.WaitText(t, "C0001", ask.TS, "Here I am again.")
	w.settled()
	if said := w.said(ask); len(said) != 1 {
		t.Errorf("the thread holds %q", said)
	}
}

// SIGTERM while a tool works that ends soon: its result is kept and it does not
// run again.
func TestTermLetsAToolFinish(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site))
	w.model.Reply(site.fetch("/held/a"), modeltest.Text("Fetched."))
	p := w.serve()
	ask := w.ask("fetch it")
	w.click("U0002", w.card(ask), "Approve")
	<-site.begun
	p.cmd.Process.Signal(syscall.SIGTERM)
	w.waitFor("Slack has noticed the end", func() bool { return w.slack.Connections() == 0 })
	close(site.release)
	p.stop()
	w.serve()
	w.slack.WaitText(t, "C0001", ask.TS, "Fetched.")
	w.settled()
	w.want("succeeded\n", `SELECT outcome FROM tool_calls`)
	if n := site.hits.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// SIGTERM while a tool works that does not end: it is cut off in time, said so,
// and not run again.
func TestTermCutsOffAToolThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site))
	w.model.Reply(site.fetch("/held/a"), modeltest.Text("It was cut off."))
	p := w.serve()
	ask := w.ask("fetch it")
	w.click("U0002", w.card(ask), "Approve")
	<-site.begun
	p.stop()
	w.serve()
	w.slack.WaitText(t, "C0001", ask.TS, "It was cut off.")
	w.settled()
	w.want("interrupted\n", `SELECT outcome FROM tool_calls`)
	if n := site.hits.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// Killed again and again at any moment while twenty threads ask, are approved and
// answered: every thread gets its answer, no call runs twice, no message is lost,
// nothing is said twice, and the audit verifies.
//
// Rows: F87, F88, F126, L78.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site), slacktest.WithRetryDelays(0, time.Second, 2*time.Second, 2*time.Second, 5*time.Second))
	const threads = 20
	var asks []slacktest.Message
	for i := range threads {
		w.model.Each(fmt.Sprintf("job %02d.", i), site.fetch(fmt.Sprintf("/job/%02d", i)), modeltest.Text(fmt.Sprintf("Job %02d is over.", i)))
	}
	p := w.serve()
	seed := rand.Uint64()
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	clicked := map[string]bool{}
	clickOpen := func() {
		for _, m := range w.slack.Thread("C0001", "") {
			if m.HasButton("Approve") && !clicked[m.TS] {
				if w.slack.Click("U0002", m, "Approve") == nil {
					clicked[m.TS] = true
				}
			}
		}
	}
	for i := range threads {
		asks = append(asks, w.ask(fmt.Sprintf("job %02d.", i)))
		if i%4 == 3 {
			// Until something has happened since, chosen by the dice; then the axe.
			n, want := len(w.slack.Calls("")), dice.IntN(12)
			w.waitFor("something happens", func() bool { clickOpen(); return len(w.slack.Calls(""))-n >= want })
			p.kill()
			p = w.serve()
		}
	}
	// A click that was acknowledged by a process that died has no effect, and the
	// card stays open: people click again.
	w.waitFor("every thread has its answer", func() bool {
		clear(clicked)
		clickOpen()
		open := 0
		for i, m := range asks {
			if !strings.Contains(strings.Join(w.said(m), "\n"), fmt.Sprintf("Job %02d is over.", i)) {
				open++
			}
		}
		return open == 0
	})
	w.settled()
	for i, m := range asks {
		n := 0
		for _, text := range w.said(m) {
			n += strings.Count(text, "is over")
		}
		if n != 1 {
			t.Errorf("job %d was answered %d times:\n%s", i, n, w.slack.Render("C0001", m.TS))
		}
	}
	site.perPath.Range(func(path, n any) bool {
		if n := n.(*atomic.Int32).Load(); n > 1 {
			t.Errorf("%s ran %d times", path, n)
		}
		return true
	})
	w.want(fmt.Sprintf("%d %d\n", threads, threads), `SELECT count(*), count(DISTINCT session_id) FROM turns WHERE status = 'done'`)
	w.want("0\n", `SELECT count(*) FROM (SELECT call_id FROM audit_log WHERE kind = 'tool_started' GROUP BY turn_id, call_id HAVING count(*) > 1) twice`)
	w.must("audit", "verify")
	if lost := w.slack.Lost(); len(lost) > 0 {
		t.Errorf("lost: %s", lost[0].Body)
	}
}
