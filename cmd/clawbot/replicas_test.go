package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// Three replicas start at the same moment on an empty database. Slack spreads
// thirty conversations and their clicks over them; one of the three is killed on
// the way. Each call runs once and each conversation is answered once.
//
// Rows: F79, F80.
func TestThreeReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, fetchYAML(site))
	const threads = 30
	for i := range threads {
		w.model.Each(fmt.Sprintf("job %02d.", i), site.fetch(fmt.Sprintf("/job/%02d", i)), modeltest.Text(fmt.Sprintf("Job %02d is over.", i)))
	}
	replicas := []*program{w.start("serve"), w.start("serve"), w.start("serve")}
	w.slack.WaitConnected(t, 3)
	var asks []slacktest.Message
	for i := range threads {
		asks = append(asks, w.ask(fmt.Sprintf("job %02d.", i)))
	}
	for i, m := range asks {
		card := w.card(m)
		if i == threads/2 {
			replicas[1].kill()
			w.slack.WaitConnected(t, 2)
		}
		w.click("U0002", card, "Approve")
		if err := w.slack.Click("U0002", card, "Approve", slacktest.Stale()); err != nil { // a double click, to another replica
			t.Fatal(err)
		}
	}
	// A click that the dead replica had taken has no effect: the card is still open,
	// and people click again.
	last := asks[threads/2-1]
	if m, _ := w.slack.Message("C0001", w.slack.Thread("C0001", last.TS)[1].TS); m.HasButton("Approve") {
		w.click("U0002", m, "Approve", slacktest.Stale())
	}
	for i, m := range asks {
		w.slack.WaitText(t, "C0001", m.TS, fmt.Sprintf("Job %02d is over.", i))
	}
	w.settled()
	for i, m := range asks {
		if said := w.said(m); len(said) > 2 || strings.Count(strings.Join(said, " "), "is over") != 1 {
			t.Errorf("thread %d holds %q", i, said)
		}
	}
	site.perPath.Range(func(path, n any) bool {
		if n := n.(*atomic.Int32).Load(); n > 1 {
			t.Errorf("%s ran %d times", path, n)
		}
		return true
	})
	w.want("30 30\n", `SELECT count(*), count(DISTINCT call_id) FROM audit_log WHERE kind = 'tool_started'`)
	w.want("30\n", `SELECT count(*) FROM audit_log WHERE kind = 'approval_decided' AND decision = 'approved'`)
	w.must("audit", "verify")
	for _, i := range []int{0, 2} {
		replicas[i].stop()
	}
}

// A replica that dies is replaced by another one without anybody's doing, as
// soon as its lease has run out.
func TestAnotherReplicaTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	never := make(chan struct{})
	defer close(never)
	w.model.Reply(modeltest.Text("lost").Hold(never), modeltest.Text("Taken over."))
	first := w.serve()
	ask := w.ask("think")
	w.model.WaitRequests(t, 1)
	w.slack.WaitIdle(t)
	w.serve()
	// Here the lease does run out by itself.
	first.cmd.Process.Kill()
	<-first.done
	w.slack.WaitText(t, "C0001", ask.TS, "Taken over.")
	w.settled()
	if n := len(w.model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
}

// Behind a balancer that sends each request to another replica, the same event is
// worked on once.
func TestHTTPReplicasBehindABalancer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Each("job", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Done once."))
	w.httpMode()
	var turn atomic.Int32
	var proxies []*httputil.ReverseProxy
	for range 3 {
		p := w.start("serve")
		u, err := url.Parse("http://" + p.addr(w))
		if err != nil {
			t.Fatal(err)
		}
		w.waitFor("the replica is ready", func() bool { status, _ := w.get(p, "/readyz"); return status == 200 })
		proxies = append(proxies, httputil.NewSingleHostReverseProxy(u))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		proxies[int(turn.Add(1))%3].ServeHTTP(rw, r)
	})}
	go srv.Serve(l)
	defer srv.Close()
	w.slack.UseHTTP("http://" + l.Addr().String())
	ask := w.slack.Say("C0001", "U0001", slacktest.Mention+" job", slacktest.Times(6), slacktest.AtOnce())
	card := w.card(ask)
	for range 3 {
		w.click("U0002", card, "Approve", slacktest.Stale())
	}
	w.slack.WaitText(t, "C0001", ask.TS, "Done once.")
	w.settled()
	w.want("1 1\n", `SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM audit_log WHERE kind = 'tool_started')`)
	if said := w.said(ask); len(said) != 1 {
		t.Errorf("the thread holds %q", said)
	}
}

// readiness is the answer of /readyz.
type readiness struct {
	OK       bool
	Database struct {
		OK     bool
		Detail string
	}
	Channels map[string]struct {
		OK     bool
		Detail string
	}
}

func (w *world) ready(p *program) readiness {
	w.t.Helper()
	status, body := w.get(p, "/readyz")
	var r readiness
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		w.t.Fatalf("/readyz: %v: %s", err, body)
	}
	if r.OK != (status == http.StatusOK) {
		w.t.Errorf("/readyz says %d and %s", status, body)
	}
	return r
}
