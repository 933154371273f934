package slacktest

import (
	"fmt"
	"strings"
)

// blockLines is blocks as a person sees them, flattened to lines.
func (s *Server) blockLines(blocks []object, marks bool) []string {
	var lines []string
	for _, b := range blocks {
		lines = append(lines, strings.Split(s.blockText(b, marks), "\n")...)
	}
	return lines
}

func (s *Server) blockText(b object, marks bool) string {
	switch b.str("type") {
	case "divider":
		return "---"
	case "header":
		return "# " + s.readText(b.obj("text"), marks)
	case "section":
		var parts []string
		if b.has("text") {
			parts = append(parts, s.readText(b.obj("text"), marks))
		}
		for _, f := range b.list("fields") {
			parts = append(parts, s.readText(f, marks))
		}
		if e := b.obj("accessory"); e != nil {
			parts = append(parts, s.elementText(e, marks))
		}
		return strings.Join(parts, "\n")
	case "context", "actions", "context_actions":
		var parts []string
		for _, e := range b.list("elements") {
			parts = append(parts, s.elementText(e, marks))
		}
		return strings.Join(parts, " ")
	case "markdown":
		return s.read(piece{kind: markdown, text: b.str("text")}, marks)
	case "rich_text":
		return s.richTextText(b, marks)
	case "image":
		return "[image: " + b.str("alt_text") + "]"
	case "table":
		return s.tableText(b, marks)
	case "input":
		return s.readText(b.obj("label"), marks) + ": " + s.elementText(b.obj("element"), marks)
	}
	return "[" + b.str("type") + "]"
}

// readText is a text object as a person reads it.
func (s *Server) readText(t object, marks bool) string {
	p := piece{kind: mrkdwn, text: t.str("text")}
	p.verbatim, _ = t["verbatim"].(bool)
	if t.str("type") == "plain_text" {
		p.kind = plain
	}
	return s.read(p, marks)
}

func (s *Server) elementText(e object, marks bool) string {
	switch kind := e.str("type"); kind {
	case "mrkdwn", "plain_text":
		return s.readText(e, marks)
	case "button", "workflow_button":
		label := "[" + s.readText(e.obj("text"), marks) + "]"
		if u := e.str("url"); u != "" && marks {
			label += "{link " + u + "}"
		}
		return label
	case "image":
		return "[image: " + e.str("alt_text") + "]"
	case "plain_text_input", "email_text_input", "url_text_input", "number_input", "rich_text_input":
		return "[" + initialValue(e) + "]"
	case "feedback_buttons":
		return "[" + s.readText(e.obj("positive_button").obj("text"), marks) + "] [" +
			s.readText(e.obj("negative_button").obj("text"), marks) + "]"
	default:
		var options []string
		for _, o := range e.list("options") {
			options = append(options, s.readText(o.obj("text"), marks))
		}
		return "[" + strings.Join(append([]string{kind + ":"}, options...), " ") + "]"
	}
}

func (s *Server) richTextText(b object, marks bool) string {
	var parts []string
	for _, e := range b.list("elements") {
		switch e.str("type") {
		case "rich_text_preformatted":
			parts = append(parts, "```\n"+s.richLine(e, marks)+"\n```")
		case "rich_text_quote":
			parts = append(parts, "> "+strings.ReplaceAll(s.richLine(e, marks), "\n", "\n> "))
		case "rich_text_list":
			indent, _ := e["indent"].(float64)
			for i, item := range e.list("elements") {
				bullet := "- "
				if e.str("style") == "ordered" {
					bullet = fmt.Sprintf("%d. ", i+1)
				}
				parts = append(parts, strings.Repeat("  ", int(indent))+bullet+s.richLine(item, marks))
			}
		default:
			parts = append(parts, strings.TrimSuffix(s.richLine(e, marks), "\n"))
		}
	}
	return strings.Join(parts, "\n")
}

// richLine is a run of rich text elements as a person reads it.
func (s *Server) richLine(section object, marks bool) string {
	var out strings.Builder
	for _, e := range section.list("elements") {
		switch e.str("type") {
		case "text":
			t := e.str("text")
			if code, _ := e.obj("style")["code"].(bool); code {
				t = "`" + t + "`"
			}
			out.WriteString(t)
		case "user":
			out.WriteString(s.readToken("@"+e.str("user_id"), marks))
		case "usergroup":
			out.WriteString(s.readToken("!subteam^"+e.str("usergroup_id"), marks))
		case "broadcast":
			out.WriteString(s.readToken("!"+e.str("range"), marks))
		case "channel":
			out.WriteString(s.readToken("#"+e.str("channel_id"), marks))
		case "link":
			out.WriteString(readLink(Link{URL: e.str("url"), Label: e.str("text")}, marks))
		case "emoji":
			out.WriteString(":" + e.str("name") + ":")
		default:
			out.WriteString("[" + e.str("type") + "]")
		}
	}
	return out.String()
}

func (s *Server) tableText(b object, marks bool) string {
	rows, _ := b["rows"].([]any)
	var lines []string
	for _, row := range rows {
		var cells []string
		for _, c := range objects(row) {
			if c.str("type") == "rich_text" {
				cells = append(cells, s.richTextText(c, marks))
			} else {
				cells = append(cells, c.str("text"))
			}
		}
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	}
	return strings.Join(lines, "\n")
}
