package slack

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// people adds one of each kind of person to #general.
func (b *bench) people() {
	for _, u := range []slacktest.User{
		{ID: "U0GUEST", Name: "Gus", Restricted: true},
		{ID: "U0SINGLE", Name: "Sid", UltraRestricted: true},
		{ID: "U0EXT", Name: "Eve", TeamID: "T0002"},
		{ID: "U0STRANGE", Name: "Stan", TeamID: "T0003", Stranger: true},
		{ID: "U0GONE", Name: "Gone", Deleted: true},
	} {
		b.AddUser(u)
		b.SetMember("C0001", u.ID, true)
	}
}

// F41, F42, F43: who may speak, by kind of person and settings.
func TestF41_F42_F43_WhoMaySpeak(t *testing.T) {
	for _, c := range []struct {
		name  string
		allow func(*Allow)
		want  string
	}{
		{"members", func(*Allow) {}, "U0001"},
		{"guests too", func(a *Allow) { a.Guests = true }, "U0001 U0GUEST U0SINGLE"},
		{"other organisations too", func(a *Allow) { a.External = true }, "U0001 U0EXT U0STRANGE"},
		{"a list", func(a *Allow) { a.Users = []string{"slack:T0001/U0002", "U0GUEST"}; a.Guests = true }, "U0002 U0GUEST"},
		{"a list of others", func(a *Allow) { a.Users = []string{"slack:T0002/U0EXT"}; a.External = true }, "U0EXT"},
		{"another channel", func(a *Allow) { a.Channels = []string{"C0999"} }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, withAllow(c.allow))
			b.people()
			refused := map[string]bool{"U0001": true, "U0002": true, "U0GUEST": true, "U0SINGLE": true, "U0EXT": true, "U0STRANGE": true, "U0GONE": true}
			for user := range refused {
				if user == "U0002" && !strings.Contains(c.want, user) {
					continue
				}
				b.Say("C0001", user, m+" hi")
			}
			b.WaitIdle(t)
			var got []string
			for _, in := range b.in.received() {
				got = append(got, in.Origin.Author.User)
				delete(refused, in.Origin.Author.User)
			}
			want := strings.Fields(c.want)
			if d := cmp.Diff(sorted(want), sorted(got)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			for user := range refused {
				if user == "U0002" || user == "U0GONE" { // did not speak; cannot be told
					continue
				}
				b.WaitMessage(t, "C0001", "", func(m slacktest.Message) bool {
					return m.EphemeralTo == user && strings.Contains(m.Shown, "cannot answer you")
				})
			}
		})
	}
}

func sorted(s []string) []string {
	out := append([]string{}, s...)
	for i := range out {
		for j := i; j > 0 && out[j] < out[j-1]; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func TestRefusalIsToldOnceAndOnlyWhenAddressed(t *testing.T) {
	b := start(t)
	b.people()
	root := b.Say("C0001", "U0001", m+" hi")
	b.Reply("C0001", root.TS, "U0GUEST", "just talking")
	b.Say("C0001", "U0GUEST", m+" hi", slacktest.Times(3))
	b.WaitMessage(t, "C0001", "", func(m slacktest.Message) bool { return m.EphemeralTo == "U0GUEST" })
	b.wait(1)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Ephemerals("U0GUEST")); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// The session is keyed by the workspace we are installed in, whoever writes.
func TestForeignAuthorKeepsOurWorkspace(t *testing.T) {
	b := start(t, withAllow(func(a *Allow) { a.External = true }))
	b.people()
	b.Say("C0001", "U0EXT", m+" hi", slacktest.OnlyMessage(), slacktest.Alter(func(doc map[string]any) {
		doc["team_id"], doc["is_ext_shared_channel"] = "T0002", true
	}))
	b.Redeliver(b.Thread("C0001", "")[0])
	got := b.wait(1)[0]
	if got.Origin.Workspace != "T0001" || got.Origin.Author.String() != "slack:T0002/U0EXT" {
		t.Errorf("%+v", got.Origin)
	}
}

func TestEventsOfOtherInstallationsAreDropped(t *testing.T) {
	b := start(t)
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMessage(), slacktest.Alter(func(doc map[string]any) {
		doc["team_id"], doc["authorizations"] = "T0009", []any{map[string]any{"team_id": "T0009"}}
	}))
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMessage(), slacktest.Alter(func(doc map[string]any) {
		doc["team_id"] = "T0009"
		delete(doc, "authorizations")
	}))
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMessage(), slacktest.Alter(func(doc map[string]any) { doc["api_app_id"] = "A0OTHER" }))
	b.wait(0)
}

// F42: a look-up that fails refuses, and Slack sends the message again.
func TestF42_FailedLookup(t *testing.T) {
	b := start(t, quick)
	b.Fail("users.info", 1, slacktest.Status(503))
	b.Fail("users.info", 1, slacktest.Hangup())
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.wait(1)
}

func TestLookupHangs(t *testing.T) {
	b := start(t)
	b.Fail("users.info", 1, slacktest.Delay(10*time.Second))
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.wait(1)
	for _, ack := range b.Acks() {
		if ack.Late {
			t.Errorf("late: %+v", ack)
		}
	}
}

func TestLookupThatCanNeverWork(t *testing.T) {
	b := start(t)
	b.RevokeScopes("users:read")
	b.Say("C0001", "U0001", m+" hi")
	b.WaitMessage(t, "C0001", "", func(m slacktest.Message) bool {
		return m.EphemeralTo == "U0001" && strings.Contains(m.Shown, "not able to check who you are")
	})
	b.wait(0)
	if _, detail := b.a.Health(); !strings.Contains(detail, "users:read") {
		t.Errorf("health: %s", detail)
	}
}

func TestDirectory(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	b := start(t, func(s *settings) { s.cfg.Now = func() time.Time { return clock } })
	b.people()
	b.AddUser(slacktest.User{ID: "U0BEEP", Name: "Beep", IsBot: true})
	group := b.AddGroup(slacktest.Group{ID: "S0001", Members: []string{"U0001"}})
	who := func(id string) agent.Actor { return agent.Actor{Channel: Name, Workspace: "T0001", User: id} }
	for id, want := range map[string]agent.Person{
		"U0001":     {Name: "Ana", Groups: []string{group}},
		"U0002":     {Name: "Ben"},
		"U0GUEST":   {Name: "Gus", Guest: true},
		"U0SINGLE":  {Name: "Sid", Guest: true},
		"U0EXT":     {Name: "Eve", External: true},
		"U0STRANGE": {Name: "Stan", External: true},
		"U0GONE":    {Name: "Gone", Inactive: true},
		"U0BEEP":    {Name: "Beep", Bot: true},
		"U0NOBODY":  {Name: "U0NOBODY", Inactive: true},
	} {
		got, err := b.a.Person(t.Context(), who(id), []string{group})
		if err != nil {
			t.Fatal(err)
		}
		want.Actor = who(id)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", id, d)
		}
	}
	for _, nobody := range []agent.Actor{{}, {Channel: "discord", Workspace: "T0001", User: "U0001"}, who("")} {
		if _, err := b.a.Person(t.Context(), nobody, nil); err == nil {
			t.Errorf("%v is somebody", nobody)
		}
	}
	if _, err := b.a.Person(t.Context(), who("U0001"), []string{group, "S0404"}); err == nil {
		t.Error("an unknown group is no error")
	}

	// F43: deactivated a moment ago; believed for a minute at most.
	b.AddUser(slacktest.User{ID: "U0001", Name: "Ana", Deleted: true})
	b.AddGroup(slacktest.Group{ID: group})
	if p, _ := b.a.Person(t.Context(), who("U0001"), []string{group}); p.Inactive || len(p.Groups) != 1 {
		t.Errorf("the cache is not used: %+v", p)
	}
	clock = clock.Add(time.Minute)
	if p, _ := b.a.Person(t.Context(), who("U0001"), []string{group}); !p.Inactive || len(p.Groups) != 0 {
		t.Errorf("after a minute: %+v", p)
	}
	clock = clock.Add(time.Minute)
	b.Fail("users.info", 1, slacktest.Status(500))
	if _, err := b.a.Person(t.Context(), who("U0001"), nil); err == nil {
		t.Error("a failed look-up is no error")
	}
	b.Fail("usergroups.users.list", 1, slacktest.RateLimited200())
	if _, err := b.a.Person(t.Context(), who("U0002"), []string{group}); err == nil {
		t.Error("a failed look-up of a group is no error")
	}
}

func TestOrganisationInstall(t *testing.T) {
	id := identity{workspace: "E0001", enterprise: true}
	if got := id.home("T0001", "T0002"); got != "E0001" {
		t.Errorf("home %s", got)
	}
	var cb callback
	cb.TeamID = "T0001"
	cb.Authorizations = append(cb.Authorizations, struct {
		TeamID       string `json:"team_id"`
		EnterpriseID string `json:"enterprise_id"`
	}{"", "E0001"})
	if !id.concerns(cb) {
		t.Error("an event of the organisation is dropped")
	}
}
