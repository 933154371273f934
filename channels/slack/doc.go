// Package slack connects clawbot to a Slack workspace.
//
// In come events, clicks and slash commands, over Socket Mode or as signed HTTP
// requests; both ways end in the same code. A message of somebody who may speak
// becomes an agent.Inbound; Slack gets its acknowledgement after Inlet.Receive
// stored it, within three seconds, and whatever could not be stored is not
// acknowledged, so that Slack sends it again. A click is acknowledged first,
// because Slack never sends one again, and then handed to Inlet.Decide. Out go
// texts and cards, as rich text blocks: typed elements in which nothing of a
// model's or a tool's text is parsed again, so that none of it can ping, hide an
// address behind a label, or draw markup.
//
// Sessions: a thread is one, and so is a direct message outside of any thread.
// A message in a channel or group direct message begins its own thread when it
// names the bot; from then on the thread is joined and needs no mention.
//
// The package reads events and interactions itself, leniently and only the
// fields it needs, and leaves the Web API and the sockets to slack-go: a new
// kind of block in a message must not make the message unreadable.
//
// Goroutines, all waited for by Run: one reader for each Socket Mode connection,
// the lanes (one worker each; all messages of a thread go through the same lane,
// so their order stays), and a pool for clicks and private notices. The package
// keeps no state that matters: caches of people (a minute), rate limits, and
// which posts had an unknown outcome.
package slack
