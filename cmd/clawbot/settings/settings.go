// Package settings reads what clawbot is told from outside: environment
// variables, files of secrets and the YAML file that CLAWBOT_CONFIG names.
//
// Load returns either settings that are whole and checked, or every mistake at
// once, each with its place and what to write. Nothing here connects to
// anything or writes a file, and no secret gets into an error.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sethvargo/go-envconfig"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
)

// Settings is everything that clawbot is told from outside, checked.
type Settings struct {
	Env  Env
	File // the sections of the settings file, with defaults

	DataDir   string // as the environment says, or its default
	Model     Model
	LogLevel  slog.Level
	positions Positions

	// SecretFiles are the files that secrets were read from (NAME_FILE).
	SecretFiles []string
}

// SlackOn reports whether Slack is configured.
func (s Settings) SlackOn() bool { return s.Env.SlackBotToken.Set() }

// DiscordOn reports whether Discord is configured.
func (s Settings) DiscordOn() bool { return s.Env.DiscordBotToken.Set() }

// ReceiptKey is the path of the file with the key of receipts.
func (s Settings) ReceiptKey() string {
	return cmp.Or(s.Agent.ToolReceipts.KeyFile, filepath.Join(s.DataDir, "keys", "receipt.key"))
}

// Load reads and checks all settings. The error is of type Errors.
func Load(environ envconfig.Lookuper) (Settings, error) {
	env, errs := readEnv(environ)
	s := Settings{Env: env, File: defaults(), SecretFiles: secretFiles(environ)}
	s.DataDir = dataDir(env, environ, os.Geteuid() == 0, &errs)
	s.Model = env.model(&errs)
	s.LogLevel, _ = logLevel(env.LogLevel)
	if env.Config != "" {
		text, problem := readFile(env.Config)
		if problem != "" {
			return Settings{}, append(errs, Mistake{File: env.Config, Msg: problem}).sort()
		}
		var wrong Errors
		s.positions, wrong = decode(env.Config, text, &s.File)
		errs = append(errs, wrong...)
	}
	errs = append(errs, s.check(errs)...)
	if len(errs) > 0 {
		return Settings{}, errs.sort()
	}
	return s, nil
}

func readFile(path string) (text []byte, problem string) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "there is no such file; write the path of the settings file into CLAWBOT_CONFIG or unset it"
	case errors.As(err, &at):
		return nil, "the file cannot be read: " + at.Err.Error()
	case err != nil:
		return nil, "the file cannot be read: " + err.Error()
	case len(text) > maxFile:
		return nil, "the file is larger than 1 MiB; write a smaller one"
	}
	return text, ""
}

// check finds what is wrong with values and their combinations. What the reader
// has told of already is not told again.
func (s Settings) check(told Errors) Errors {
	found := slices.Concat(s.Agent.Validate(), s.Channels.Slack.Validate(), s.Tools.Validate(), s.Hooks.Validate(), s.File.validate())
	policy, wrong := approval.NewPolicy(s.Approval)
	found = append(found, wrong...)
	if policy != nil {
		unreachable, _ := s.unreachable(policy)
		found = append(found, unreachable...)
	}
	if d := s.Channels.Discord.Allow; s.DiscordOn() && len(d.Guilds)+len(d.Roles)+len(d.Users) == 0 {
		found = append(found, &agent.ConfigError{
			Path: "channels.discord.allow",
			Msg:  "Discord is on (DISCORD_BOT_TOKEN), but nobody may speak there; write ids into guilds, roles or users",
		})
	}
	var out Errors
	for _, err := range found {
		m := s.locate(err)
		if !slices.ContainsFunc(told, func(t Mistake) bool { return t.File != "" && covers(t.Path, m.Path) }) {
			out = append(out, m)
		}
	}
	return out
}

// covers reports whether a mistake at one path explains one at the other.
func covers(told, path string) bool {
	rest, below := strings.CutPrefix(path, told)
	return told == "" || below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// locate gives a mistake its place. Where there is no file, it is the section
// that is missing.
func (s Settings) locate(err error) Mistake {
	m := s.positions.locate(err)
	if m.File == "" {
		m.Msg += " (in the file that CLAWBOT_CONFIG names; there is none)"
	}
	return m
}

// unreachable finds questions that could come up on a channel that is on and
// that nobody on it could decide: as errors, or as notices where a rule names
// people of another front door on purpose.
func (s Settings) unreachable(p *approval.Policy) (errs []error, notices []string) {
	type channel struct {
		name     agent.ChannelName
		on       bool
		title    string
		variable string
		write    string
	}
	channels := []channel{
		{"slack", s.SlackOn(), "Slack", "SLACK_BOT_TOKEN", `users: ["slack:TEAM/USER"], slack_groups: ["ID"] or requester: true`},
		{"discord", s.DiscordOn(), "Discord", "DISCORD_BOT_TOKEN", `users: ["discord:GUILD/USER"], discord_roles: ["ID"] or requester: true`},
	}
	told := map[string]bool{}
	for _, a := range p.Asking() {
		own := a.ApproversPath != "approval.approvers"
		elsewhere := a.Approvers.Local || reaches(a.Approvers, "cli")
		for _, c := range channels {
			elsewhere = elsewhere || c.on && reaches(a.Approvers, c.name)
		}
		for _, c := range channels {
			key := a.ApproversPath + " " + string(c.name)
			if !c.on || reaches(a.Approvers, c.name) || told[key] {
				continue
			}
			told[key] = true
			if own && elsewhere {
				notices = append(notices, fmt.Sprintf("%s: nobody on %s can decide what rule %s asks; it waits for the people the rule names", a.ApproversPath, c.title, a.Rule))
				continue
			}
			errs = append(errs, &agent.ConfigError{
				Path: a.ApproversPath,
				Msg:  fmt.Sprintf("%s is on (%s), but nobody there may decide what is asked; write %s", c.title, c.variable, c.write),
			})
		}
	}
	return errs, notices
}

// reaches reports whether somebody on the channel is among the approvers.
func reaches(a agent.Approvers, channel agent.ChannelName) bool {
	switch {
	case a.Requester && channel != "cli",
		channel == "slack" && len(a.SlackGroups) > 0,
		channel == "discord" && len(a.DiscordRoles) > 0:
		return true
	}
	return slices.ContainsFunc(a.Users, func(u string) bool { return strings.HasPrefix(u, string(channel)+":") })
}

// Notices says in one line each what is configured but has no effect, so that
// nobody relies on it. The program prints them at start.
func (s Settings) Notices() []string {
	var out []string
	for _, f := range s.unavailable() {
		if f.path == "" {
			out = append(out, f.what)
		} else {
			out = append(out, f.path+": "+f.what)
		}
	}
	if policy, _ := approval.NewPolicy(s.Approval); policy != nil {
		_, notices := s.unreachable(policy)
		out = append(out, notices...)
		out = append(out, policy.Unmeetable()...)
	}
	if d := s.Approval.Default; d != nil && *d == agent.Allow {
		out = append(out, "approval.default: allow loosens nothing, since a tool's own default still counts; write a rule with action: allow")
	}
	if s.Agent.ToolProtocol == agent.ProtocolText && s.Agent.StrictParsing {
		out = append(out, "agent.strict_parsing hides agent.tool_protocol: text; tools are offered natively")
	}
	if !s.SlackOn() {
		for name, set := range map[string]bool{"SLACK_APP_TOKEN": s.Env.SlackAppToken.Set(), "SLACK_SIGNING_SECRET": s.Env.SlackSigningSecret.Set()} {
			if set {
				out = append(out, name+": it has no effect without SLACK_BOT_TOKEN; Slack is off")
			}
		}
	}
	slices.Sort(out)
	return out
}

// UnknownExclusions returns a notice for each agent.excluded_tools entry that
// names none of the given tools.
func (s Settings) UnknownExclusions(tools []string) []string {
	var out []string
	for i, name := range s.Agent.ExcludedTools {
		if !slices.ContainsFunc(tools, func(t string) bool { return strings.EqualFold(t, name) }) {
			out = append(out, fmt.Sprintf("agent.excluded_tools[%d]: there is no tool %s", i, name))
		}
	}
	return out
}
