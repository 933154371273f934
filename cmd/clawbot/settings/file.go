package settings

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/channels/slack"
	"github.com/clawbot/clawbot/hooks"
	"github.com/clawbot/clawbot/tools"
)

// File is the settings file. defaults has the values that count where the file
// is silent.
type File struct {
	Agent    agent.Config    `yaml:"agent"`
	Approval approval.Config `yaml:"approval"`
	Hooks    hooks.Config    `yaml:"hooks"`
	Channels Channels        `yaml:"channels"`
	Tools    tools.Config    `yaml:"tools"`
	MCP      MCP             `yaml:"mcp"`
	// ToolFilterGroups decide which MCP tools the model sees; they grant nothing.
	ToolFilterGroups []FilterGroup `yaml:"tool_filter_groups"`
}

// Channels is the section `channels`.
type Channels struct {
	Slack   slack.Config `yaml:"slack"`
	Discord Discord      `yaml:"discord"`
}

// Discord is the section `channels.discord`.
type Discord struct {
	Allow   DiscordAllow `yaml:"allow"`
	Trigger string       `yaml:"trigger"` // mention or all
}

// DiscordAllow is who may speak to clawbot on Discord, by ids. The first three
// admit; the last two narrow where they are not empty.
type DiscordAllow struct {
	Guilds     []string `yaml:"guilds"`
	Roles      []string `yaml:"roles"`
	Users      []string `yaml:"users"`
	Channels   []string `yaml:"channels"`
	Categories []string `yaml:"categories"`
}

// MCP is the section `mcp`.
type MCP struct {
	// Deferred shows the model tool_search instead of all MCP tools.
	Deferred bool `yaml:"deferred"`
	// Servers by name; their tools are called NAME__TOOL.
	Servers map[string]MCPServer `yaml:"servers"`
}

// MCPServer is one server: a program to start or an address.
type MCPServer struct {
	Command []string `yaml:"command"`
	URL     string   `yaml:"url"`
}

// FilterGroup makes MCP tools visible to the model.
type FilterGroup struct {
	Mode     string   `yaml:"mode"` // always, or dynamic: when the person's message has a keyword
	Tools    []string `yaml:"tools"`
	Keywords []string `yaml:"keywords"`
}

func defaults() File {
	return File{
		Agent:    agent.DefaultConfig(),
		Approval: approval.DefaultConfig(),
		Channels: Channels{
			Slack:   slack.DefaultConfig(),
			Discord: Discord{Trigger: "mention"},
		},
		Tools: tools.DefaultConfig(),
	}
}

// validate returns every mistake in the sections that have no package of their
// own here.
func (f File) validate() []error {
	var errs []error
	wrong := func(path, format string, args ...any) {
		errs = append(errs, &agent.ConfigError{Path: path, Msg: fmt.Sprintf(format, args...)})
	}
	discord := f.Channels.Discord
	if t := discord.Trigger; t != "mention" && t != "all" {
		wrong("channels.discord.trigger", "%q is unknown; write mention or all", t)
	}
	blank := func(path string, list []string) {
		for i, s := range list {
			if s == "" || strings.ContainsFunc(s, unicode.IsSpace) {
				wrong(fmt.Sprintf("%s[%d]", path, i), "%q is no id; write the id that the platform shows", s)
			}
		}
	}
	blank("channels.discord.allow.guilds", discord.Allow.Guilds)
	blank("channels.discord.allow.roles", discord.Allow.Roles)
	blank("channels.discord.allow.users", discord.Allow.Users)
	blank("channels.discord.allow.channels", discord.Allow.Channels)
	blank("channels.discord.allow.categories", discord.Allow.Categories)

	for name, server := range f.MCP.Servers {
		path := "mcp.servers." + name
		if name == "" || strings.Contains(name, "__") || strings.ContainsFunc(name, notInName) {
			wrong(path, "%q is no name for a server; write letters, digits, - and single _ only", name)
		}
		if (len(server.Command) == 0) == (server.URL == "") {
			wrong(path, `one of the two is needed; write command: ["PROGRAM", "ARGUMENT"] or url: "https://HOST/"`)
		}
	}
	for i, g := range f.ToolFilterGroups {
		path := fmt.Sprintf("tool_filter_groups[%d]", i)
		switch {
		case g.Mode != "always" && g.Mode != "dynamic":
			wrong(path+".mode", "%q is unknown; write always or dynamic", g.Mode)
		case g.Mode == "dynamic" && len(g.Keywords) == 0:
			wrong(path+".keywords", "mode dynamic needs them; write words that make the tools visible")
		}
		if len(g.Tools) == 0 {
			wrong(path+".tools", `it names no tool; write globs such as ["server__*"]`)
		}
	}
	return errs
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}
