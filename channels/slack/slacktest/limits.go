package slacktest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Slack's documented limits, in UTF-16 code units or in elements.
const (
	maxText          = 4000
	maxTextCut       = 40000 // Slack shortens a posted text to this
	maxMarkdown      = 12000 // markdown_text, or all markdown blocks together
	maxBlocks        = 50
	maxViewBlocks    = 100
	maxBlockJSON     = 13200 // not documented: msg_blocks_too_long beyond it
	maxSection       = 3000
	maxFields        = 10
	maxField         = 2000
	maxHeader        = 150
	maxContext       = 10
	maxActions       = 25
	maxID            = 255
	maxButton        = 75
	maxButtonValue   = 2000
	maxURL           = 3000
	maxOptionText    = 75
	maxOptions       = 100
	maxPlaceholder   = 150
	maxAttachments   = 100
	maxViewTitle     = 24
	maxPrivateMeta   = 3000
	maxInputLabel    = 2000
	maxInputInitial  = 3000
	maxTableRows     = 100
	maxTableColumns  = 20
	maxSocketAck     = 20480
	maxLoadingStatus = 10
)

// surface is where blocks are shown; it decides which are allowed.
type surface int

const (
	inMessage surface = iota
	inModal
	inHome
)

// checkBlocks validates the blocks of a message. The error is a *apiError.
func checkBlocks(blocks []object, on surface) error {
	limit := maxBlocks
	if on != inMessage {
		limit = maxViewBlocks
	}
	c := &checker{surface: on, blockIDs: map[string]bool{}}
	if len(blocks) > limit {
		c.fail("", "no more than %d items allowed", limit)
	}
	for i, b := range blocks {
		c.block(fmt.Sprintf("/blocks/%d", i), b)
	}
	if c.markdown > maxMarkdown {
		return &apiError{code: "msg_too_long"}
	}
	if len(c.problems) > 0 {
		return invalidBlocks(c.problems...)
	}
	if on == inMessage && length(string(encode(blocks))) > maxBlockJSON {
		return &apiError{code: "msg_blocks_too_long"}
	}
	return nil
}

func invalidBlocks(problems ...string) *apiError {
	return &apiError{code: "invalid_blocks", more: object{
		"errors":            problems,
		"response_metadata": object{"messages": problems},
	}}
}

// parseBlocks reads and validates the blocks argument of a message.
func parseBlocks(raw json.RawMessage) ([]object, error) {
	blocks, err := decodeObjects(raw)
	if err != nil {
		return nil, &apiError{code: "invalid_blocks_format"}
	}
	return blocks, checkBlocks(blocks, inMessage)
}

// checker walks blocks and notes what is wrong with them.
type checker struct {
	surface  surface
	problems []string
	blockIDs map[string]bool
	markdown int // code units in markdown blocks so far
	inputs   int
}

func (c *checker) fail(path, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("[ERROR] "+format, args...)+" [json-pointer:"+path+"]")
}

// most checks that a string is no longer than max.
func (c *checker) most(path, s string, max int) {
	if length(s) > max {
		c.fail(path, "must be less than %d characters", max+1)
	}
}

// text checks a text object under key; kinds are the types it may have.
func (c *checker) text(path string, o object, key string, max int, kinds ...string) {
	path += "/" + key
	t := o.obj(key)
	if t == nil {
		c.fail(path, "missing required field: %s", key)
		return
	}
	c.textObject(path, t, max, kinds...)
}

func (c *checker) textObject(path string, t object, max int, kinds ...string) {
	kind := t.str("type")
	if !slices.Contains(kinds, kind) {
		c.fail(path+"/type", "must be a valid enum value, not %q", kind)
	}
	if t.str("text") == "" {
		c.fail(path+"/text", "must be more than 0 characters")
	}
	c.most(path+"/text", t.str("text"), max)
	if kind == "mrkdwn" && t.has("emoji") {
		c.fail(path+"/emoji", "additional property: emoji")
	}
	if kind == "plain_text" && t.has("verbatim") {
		c.fail(path+"/verbatim", "additional property: verbatim")
	}
}

func (c *checker) block(path string, b object) {
	if b == nil {
		c.fail(path, "must be an object")
		return
	}
	kind := b.str("type")
	if kind != "markdown" { // Slack ignores the block_id of a markdown block
		if id := b.str("block_id"); id != "" {
			c.most(path+"/block_id", id, maxID)
			if c.blockIDs[id] {
				c.fail(path+"/block_id", "block_id already exists: %s", id)
			}
			c.blockIDs[id] = true
		}
	}
	if c.surface != inMessage && slices.Contains([]string{"markdown", "table", "file", "context_actions"}, kind) {
		c.fail(path+"/type", "unsupported type here: %s", kind)
		return
	}
	switch kind {
	case "divider":
	case "section":
		c.section(path, b)
	case "header":
		c.text(path, b, "text", maxHeader, "plain_text")
	case "image":
		c.image(path, b)
	case "context":
		c.context(path, b)
	case "actions":
		c.actions(path, b, maxActions, actionTypes)
	case "context_actions":
		c.actions(path, b, 5, []string{"feedback_buttons", "icon_button"})
	case "markdown":
		if b.str("text") == "" {
			c.fail(path+"/text", "must be more than 0 characters")
		}
		c.markdown += length(b.str("text"))
	case "rich_text":
		c.richText(path, b)
	case "table":
		c.table(path, b)
	case "input":
		c.input(path, b)
	case "file":
		if b.str("external_id") == "" || b.str("source") != "remote" {
			c.fail(path, "missing required field: external_id")
		}
	default:
		c.fail(path+"/type", "unsupported type: %s", kind)
	}
}

func (c *checker) section(path string, b object) {
	fields := b.list("fields")
	if !b.has("text") && len(fields) == 0 {
		c.fail(path, "missing required field: text or fields")
	}
	if b.has("text") {
		c.text(path, b, "text", maxSection, "mrkdwn", "plain_text")
	}
	if len(fields) > maxFields {
		c.fail(path+"/fields", "no more than %d items allowed", maxFields)
	}
	for i, f := range fields {
		c.textObject(fmt.Sprintf("%s/fields/%d", path, i), f, maxField, "mrkdwn", "plain_text")
	}
	if b.has("accessory") {
		c.element(path+"/accessory", b.obj("accessory"), append([]string{"image"}, actionTypes...))
	}
}

func (c *checker) image(path string, b object) {
	if b.str("image_url") == "" && !b.has("slack_file") {
		c.fail(path, "missing required field: image_url")
	}
	c.most(path+"/image_url", b.str("image_url"), maxURL)
	if b.str("alt_text") == "" {
		c.fail(path, "missing required field: alt_text")
	}
	c.most(path+"/alt_text", b.str("alt_text"), 2000)
	if b.has("title") {
		c.text(path, b, "title", 2000, "plain_text")
	}
}

func (c *checker) context(path string, b object) {
	elements := b.list("elements")
	if len(elements) == 0 || len(elements) > maxContext {
		c.fail(path+"/elements", "between 1 and %d items allowed", maxContext)
	}
	for i, e := range elements {
		at := fmt.Sprintf("%s/elements/%d", path, i)
		if e.str("type") == "image" {
			c.image(at, e)
		} else {
			c.textObject(at, e, maxSection, "mrkdwn", "plain_text")
		}
	}
}

// actions checks a block of interactive elements, whose action_ids must differ.
func (c *checker) actions(path string, b object, most int, kinds []string) {
	elements := b.list("elements")
	if len(elements) == 0 || len(elements) > most {
		c.fail(path+"/elements", "between 1 and %d items allowed", most)
	}
	seen := map[string]bool{}
	for i, e := range elements {
		at := fmt.Sprintf("%s/elements/%d", path, i)
		c.element(at, e, kinds)
		if id := e.str("action_id"); id != "" {
			if seen[id] {
				c.fail(at+"/action_id", "action_id already exists: %s", id)
			}
			seen[id] = true
		}
	}
}

// richText checks that a rich text has no empty text and no unknown part.
func (c *checker) richText(path string, b object) {
	elements := b.list("elements")
	if len(elements) == 0 {
		c.fail(path+"/elements", "must have more than 0 items")
	}
	for i, e := range elements {
		at := fmt.Sprintf("%s/elements/%d", path, i)
		switch e.str("type") {
		case "rich_text_section", "rich_text_preformatted", "rich_text_quote":
			c.richElements(at, e)
		case "rich_text_list":
			for j, item := range e.list("elements") {
				c.richElements(fmt.Sprintf("%s/elements/%d", at, j), item)
			}
		default:
			c.fail(at+"/type", "unsupported type: %s", e.str("type"))
		}
	}
}

func (c *checker) richElements(path string, section object) {
	for i, e := range section.list("elements") {
		at := fmt.Sprintf("%s/elements/%d", path, i)
		need := map[string]string{
			"text": "text", "link": "url", "user": "user_id", "usergroup": "usergroup_id", "channel": "channel_id",
			"emoji": "name", "broadcast": "range", "date": "format", "color": "value", "team": "team_id",
		}[e.str("type")]
		if need == "" {
			c.fail(at+"/type", "unsupported type: %s", e.str("type"))
		} else if e.str(need) == "" {
			c.fail(at+"/"+need, "must be more than 0 characters")
		}
	}
}

func (c *checker) table(path string, b object) {
	rows, _ := b["rows"].([]any)
	if len(rows) == 0 || len(rows) > maxTableRows {
		c.fail(path+"/rows", "between 1 and %d items allowed", maxTableRows)
	}
	for i, row := range rows {
		at := fmt.Sprintf("%s/rows/%d", path, i)
		cells := objects(row)
		if len(cells) == 0 || len(cells) > maxTableColumns {
			c.fail(at, "between 1 and %d items allowed", maxTableColumns)
		}
		for j, cell := range cells {
			switch cell.str("type") {
			case "rich_text":
				c.richText(fmt.Sprintf("%s/%d", at, j), cell)
			case "raw_text":
			default:
				c.fail(fmt.Sprintf("%s/%d/type", at, j), "unsupported type: %s", cell.str("type"))
			}
		}
	}
}
