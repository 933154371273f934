package slack

import (
	"strings"
)

// mentions reports whether a text in Slack's form names the bot.
func mentions(s, bot string) bool {
	return bot != "" && (strings.Contains(s, "<@"+bot+">") || strings.Contains(s, "<@"+bot+"|"))
}

// readText turns Slack's form of a text into what its author wrote: tokens such
// as <@U1>, <#C1|name> and <address|label> into words, the three entities into
// their characters, once. Mentions of the bot at the beginning are dropped.
func readText(s string, me identity) string {
	var out strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '<')
		if i < 0 {
			out.WriteString(unescape(s))
			break
		}
		out.WriteString(unescape(s[:i]))
		s = s[i+1:]
		end := strings.IndexAny(s, "<>\n")
		if end < 0 || s[end] != '>' {
			out.WriteByte('<') // no token; Slack sends none such
			continue
		}
		token := s[:end]
		s = s[end+1:]
		id, isUser := strings.CutPrefix(token, "@")
		id, _, _ = strings.Cut(id, "|")
		switch {
		case isUser && id == me.userID && strings.TrimSpace(out.String()) == "":
			s = strings.TrimLeft(s, " \u00A0:,")
		case isUser && id == me.userID && me.userName != "":
			out.WriteString("@" + me.userName)
		default:
			out.WriteString(readToken(token))
		}
	}
	// A NUL cannot be stored, and a carriage return is no line.
	return strings.TrimSpace(strings.NewReplacer("\x00", "\uFFFD", "\r\n", "\n").Replace(strings.ToValidUTF8(out.String(), "\uFFFD")))
}

// readToken is what a person sees for the token <t>.
func readToken(t string) string {
	target, label, _ := strings.Cut(t, "|")
	target, label = unescape(target), unescape(label)
	switch {
	case strings.HasPrefix(target, "@"), strings.HasPrefix(target, "#"):
		if label != "" {
			return target[:1] + strings.TrimLeft(label, "@#")
		}
		return target
	case strings.HasPrefix(target, "!subteam^"):
		if label != "" {
			return "@" + strings.TrimLeft(label, "@")
		}
		return "@" + strings.TrimPrefix(target, "!subteam^")
	case strings.HasPrefix(target, "!date^"):
		return label
	case strings.HasPrefix(target, "!"):
		return "@" + strings.TrimPrefix(target, "!")
	}
	bare := strings.TrimPrefix(target, "mailto:")
	bare = strings.TrimPrefix(bare, "tel:")
	if label == "" || label == bare || label == target ||
		strings.TrimPrefix(strings.TrimPrefix(target, "https://"), "http://") == label {
		return bare
	}
	return label + " (" + target + ")"
}

var (
	escaper   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	unescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
)

// escape writes the three characters that Slack's text knows, once.
func escape(s string) string { return escaper.Replace(s) }

// unescape undoes escape, once.
func unescape(s string) string { return unescaper.Replace(s) }
