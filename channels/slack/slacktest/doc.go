// Package slacktest is a fake Slack: a real HTTP and WebSocket server on
// loopback that the real Slack client talks to, as strict as Slack is and
// stricter where Slack accepts what is a defect for us.
//
// A test plays the people of a workspace. What they do ([Server.Say],
// [Server.Reply], [Server.Click], [Server.Submit], [Server.Command]) reaches
// the program under test as Slack would deliver it, over Socket Mode or as
// signed HTTP requests ([Server.UseHTTP]). What the program does comes in by
// the Web API, is checked against Slack's rules, and can be read back:
// [Server.Thread], [Server.Render], [Server.Calls], [Server.Violations].
//
//	s := slacktest.Start(t)                      // closed when the test ends
//	startProgram(t, "SLACK_API_URL="+s.APIURL(),
//		"SLACK_BOT_TOKEN="+s.BotToken, "SLACK_APP_TOKEN="+s.AppToken)
//	s.WaitConnected(t, 1)
//
//	ask := s.Say("C0001", "U0001", slacktest.Mention+" delete the old logs")
//	card := s.WaitMessage(t, "C0001", ask.TS, func(m slacktest.Message) bool {
//		return m.HasButton("Approve")
//	})
//	if err := s.Click("U0002", card, "Approve"); err != nil {
//		t.Fatal(err)
//	}
//	s.WaitMessage(t, "C0001", ask.TS, func(m slacktest.Message) bool {
//		return m.TS == card.TS && strings.Contains(m.Shown, "Approved by @Ben")
//	})
//	t.Log(s.Render("C0001", ask.TS))
//
// # The workspace
//
// It starts with the team T0001, the members U0001 Ana, U0002 Ben and U0003
// Cleo, the bot user U0BOT, and the public channel C0001 #general that all of
// them are in. [Server.AddUser], [Server.AddChannel], [Server.AddGroup] and
// [Server.DM] add to it.
//
// # Three kinds of no
//
//   - What Slack refuses is refused with Slack's own error code (limits, scopes,
//     tokens, membership, ownership).
//   - What Slack accepts and what is a defect for us goes through and is recorded
//     as a [Violation]: link previews left on, text that pings somebody, a text of
//     more than 4,000 characters, a frame that acknowledges nothing, and so on.
//     [Strict] makes a test fail on those.
//   - What a person could not do (click a button that is not there, submit a form
//     with a required field left empty) is an error returned to the test. Naming a
//     user or channel that does not exist is a mistake in the test and panics.
//
// # Waiting
//
// Nothing here needs a sleep. [Server.WaitMessage] and [Server.WaitFor] look
// again on every change; [Server.WaitIdle] returns when every event has been
// acknowledged, after which a test may look for what must not have happened.
//
// # Faults
//
// [Server.Fail] makes the next calls of a method fail in a chosen way,
// [Server.EnforceRates] applies Slack's rate limits, [Server.SetScopes] takes
// permissions away, [Server.Disconnect] and [Server.DropConnections] break
// sockets, and [Server.DeliverRaw] sends any bytes at all.
//
// Lengths are counted in UTF-16 code units, the larger of the counts that
// Slack might use.
package slacktest
