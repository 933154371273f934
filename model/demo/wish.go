package demo

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxJoints = 20        // how many "and" of a message may join wishes
	maxText   = 256 << 10 // bytes of a message that are read
)

// wish is a tool call that a person asked for.
type wish struct {
	tool string
	args string
}

// forms are the wishes in the order they are tried. Each gets the words after
// its verb and says whether they make sense.
var forms = []struct {
	verb  string
	parse func(rest string, now time.Time) (wish, bool)
}{
	{"write", write},
	{"read", func(rest string, _ time.Time) (wish, bool) { return named("read_file", "path", word(rest)) }},
	{"list", list},
	{"ls", list},
	{"fetch", fetch},
	{"run", func(rest string, _ time.Time) (wish, bool) { return named("shell", "command", unquote(rest)) }},
	{"remind me", remind},
	{"reminders", func(rest string, _ time.Time) (wish, bool) { return call("cron_list", nil), rest == "" }},
	{"forget", func(rest string, _ time.Time) (wish, bool) { return named("cron_remove", "id", word(rest)) }},
	{"send", send},
	{"ask", func(rest string, _ time.Time) (wish, bool) { return named("ask_user", "question", unquote(rest)) }},
	{"escalate", func(rest string, _ time.Time) (wish, bool) {
		return named("escalate_to_human", "reason", unquote(rest))
	}},
	{"delegate", func(rest string, _ time.Time) (wish, bool) { return named("delegate", "task", unquote(rest)) }},
	{"call", anyTool},
}

var (
	mention = regexp.MustCompile(`^(?:<@[^>\s]*>|@[\w.-]+)[\s,:]*`)
	joint   = regexp.MustCompile(`(?i)\s+and\s+`)
)

// parse returns the wishes of a message; none if it does not understand all of
// it. "and" joins wishes only where wishes stand on both sides, so it may also
// stand in what is to be written.
func parse(text string, now time.Time) []wish {
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "\uFFFD")
	text = strings.TrimSpace(mention.ReplaceAllString(strings.TrimSpace(text), ""))
	return split(text, joint.FindAllStringIndex(text, maxJoints), 0, now, map[int]bool{})
}

// split returns the wishes from offset on. Each "and" is tried as a joint, the
// first one first; failed keeps the offsets where no reading was found.
func split(text string, joints [][]int, offset int, now time.Time, failed map[int]bool) []wish {
	if failed[offset] {
		return nil
	}
	for _, at := range joints {
		if at[0] < offset {
			continue
		}
		if first, ok := parseOne(text[offset:at[0]], now); ok {
			if rest := split(text, joints, at[1], now, failed); rest != nil {
				return append([]wish{first}, rest...)
			}
		}
	}
	if w, ok := parseOne(text[offset:], now); ok {
		return []wish{w}
	}
	failed[offset] = true
	return nil
}

func parseOne(text string, now time.Time) (wish, bool) {
	text = strings.TrimSpace(text)
	if len(text) > len("please ") && strings.EqualFold(text[:len("please ")], "please ") {
		text = strings.TrimSpace(text[len("please "):])
	}
	for _, form := range forms {
		if len(text) < len(form.verb) || !strings.EqualFold(text[:len(form.verb)], form.verb) {
			continue
		}
		rest := text[len(form.verb):]
		if rest != "" && strings.TrimLeft(rest, " \t\r\n") == rest {
			continue // a longer word that only begins like the verb
		}
		if w, ok := form.parse(strings.TrimSpace(rest), now); ok {
			return w, true
		}
	}
	return wish{}, false
}

// write reads "PATH: CONTENT" and "CONTENT to PATH".
func write(rest string, _ time.Time) (wish, bool) {
	if path, content, ok := strings.Cut(rest, ":"); ok && word(path) != "" {
		return call("write_file", map[string]any{"path": word(path), "content": strings.TrimSpace(content)}), true
	}
	if at := strings.LastIndex(rest, " to "); at > 0 && word(rest[at+4:]) != "" {
		return call("write_file", map[string]any{"path": word(rest[at+4:]), "content": unquote(strings.TrimSpace(rest[:at]))}), true
	}
	return wish{}, false
}

func list(rest string, _ time.Time) (wish, bool) {
	if rest == "" || strings.EqualFold(rest, "files") {
		return call("list_dir", map[string]any{"path": "."}), true
	}
	return named("list_dir", "path", word(rest))
}

func fetch(rest string, _ time.Time) (wish, bool) {
	address := word(rest)
	if strings.HasPrefix(rest, "<") { // as Slack writes links: <URL|text>
		address, _, _ = strings.Cut(strings.TrimRight(rest[1:], ">"), "|")
		address = word(address)
	}
	if address != "" && !strings.Contains(address, "://") {
		address = "https://" + address
	}
	return named("http_fetch", "url", address)
}

var (
	inTime   = regexp.MustCompile(`(?is)^in\s+(\d{1,5})\s*(s|seconds?|m|min|minutes?|h|hours?|d|days?)[\s:,]+(?:to\s+)?(.+)$`)
	atTime   = regexp.MustCompile(`(?is)^at\s+(\d{4}-\d\d-\d\dT\S*?)(?::\s+|,\s*|\s+)(?:to\s+)?(.+)$`)
	everyTag = regexp.MustCompile(`(?is)^every\s+(minute|hour|day|weekday|week|month)(?::\s*|,\s*|\s+)(?:to\s+)?(.+)$`)
	everyRaw = regexp.MustCompile(`(?is)^every\s+((?:[\d*/,-]+\s+){4}[\w*/,-]+)(?::\s*|,\s*|\s+)(?:to\s+)?(.+)$`)
)

var schedules = map[string]string{
	"minute": "* * * * *", "hour": "0 * * * *", "day": "0 9 * * *",
	"weekday": "0 9 * * 1-5", "week": "0 9 * * 1", "month": "0 9 1 * *",
}

// reminder begins the prompt of a job, so that its run can be told from a wish.
const reminder = "Reminder: "

func remind(rest string, now time.Time) (wish, bool) {
	cron := func(when, value, prompt string) (wish, bool) {
		return call("cron_add", map[string]any{"prompt": reminder + strings.TrimSpace(prompt), when: value}), true
	}
	if m := inTime.FindStringSubmatch(rest); m != nil {
		n, _ := strconv.Atoi(m[1]) // at most five digits
		unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[strings.ToLower(m[2])[0]]
		return cron("at", now.Add(time.Duration(n)*unit).UTC().Format(time.RFC3339), m[3])
	}
	if m := atTime.FindStringSubmatch(rest); m != nil {
		if at, err := time.Parse(time.RFC3339, strings.TrimRight(m[1], ":")); err == nil {
			return cron("at", at.Format(time.RFC3339), m[2])
		}
		return wish{}, false
	}
	if m := everyTag.FindStringSubmatch(rest); m != nil {
		return cron("schedule", schedules[strings.ToLower(m[1])], m[2])
	}
	if m := everyRaw.FindStringSubmatch(rest); m != nil {
		return cron("schedule", strings.Join(strings.Fields(m[1]), " "), m[2])
	}
	return wish{}, false
}

var target = regexp.MustCompile(`^(?:(slack|discord|terminal|cli|web):)?(?:<#)?#?([A-Za-z0-9_.-]+)(?:\|[^>]*)?>?$`)

// send reads "TEXT to CHANNEL" and "TEXT", which stays in the conversation.
func send(rest string, _ time.Time) (wish, bool) {
	if at := strings.LastIndex(rest, " to "); at > 0 {
		if m := target.FindStringSubmatch(strings.TrimSpace(rest[at+4:])); m != nil {
			args := map[string]any{"text": unquote(strings.TrimSpace(rest[:at])), "conversation": m[2]}
			if m[1] != "" {
				args["channel"] = m[1]
			}
			return call("send_message", args), true
		}
	}
	return named("send_message", "text", unquote(rest))
}

// anyTool reads "TOOL {arguments}".
func anyTool(rest string, _ time.Time) (wish, bool) {
	name, args, _ := strings.Cut(rest, " ")
	args = strings.TrimSpace(args)
	if args == "" {
		args = "{}"
	}
	if name == "" || !strings.HasPrefix(args, "{") || !json.Valid([]byte(args)) {
		return wish{}, false
	}
	return wish{name, args}, true
}

// named is a call with one argument, which must not be empty.
func named(tool, argument, value string) (wish, bool) {
	return call(tool, map[string]any{argument: value}), value != ""
}

func call(tool string, args map[string]any) wish {
	if args == nil {
		args = map[string]any{}
	}
	out, _ := json.Marshal(args) // strings only
	return wish{tool, string(out)}
}

// word returns text without quotes if it is one word or quoted, else "".
func word(text string) string {
	text = strings.TrimSpace(text)
	if inner := unquote(text); inner != text {
		return inner
	}
	if strings.ContainsAny(text, " \t\r\n") {
		return ""
	}
	return text
}

// unquote takes off one pair of quotes or backticks around the whole text.
func unquote(text string) string {
	for _, q := range []string{`"`, "'", "`"} {
		if len(text) > 2 && strings.HasPrefix(text, q) && strings.HasSuffix(text, q) {
			return text[1 : len(text)-1]
		}
	}
	return text
}
