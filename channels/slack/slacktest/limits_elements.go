package slacktest

import (
	"fmt"
	"slices"
)

// actionTypes are the elements that may stand in an actions block.
var actionTypes = []string{
	"button", "static_select", "external_select", "users_select", "conversations_select", "channels_select",
	"overflow", "datepicker", "timepicker", "datetimepicker", "radio_buttons", "checkboxes", "workflow_button",
}

// inputTypes are the elements that may stand in an input block.
var inputTypes = []string{
	"plain_text_input", "email_text_input", "url_text_input", "number_input", "rich_text_input", "file_input",
	"static_select", "external_select", "users_select", "conversations_select", "channels_select",
	"multi_static_select", "multi_external_select", "multi_users_select", "multi_conversations_select",
	"multi_channels_select", "datepicker", "timepicker", "datetimepicker", "radio_buttons", "checkboxes",
}

func interactiveElement(kind string) bool {
	return slices.Contains(actionTypes, kind) || slices.Contains(inputTypes, kind)
}

// element checks one interactive element; kinds are the types allowed there.
func (c *checker) element(path string, e object, kinds []string) {
	kind := e.str("type")
	if !slices.Contains(kinds, kind) {
		c.fail(path+"/type", "unsupported type: %s", kind)
		return
	}
	c.most(path+"/action_id", e.str("action_id"), maxID)
	if e.has("placeholder") {
		c.text(path, e, "placeholder", maxPlaceholder, "plain_text")
	}
	if e.has("confirm") {
		c.confirm(path+"/confirm", e.obj("confirm"))
	}
	switch kind {
	case "image":
		c.image(path, e)
	case "button":
		c.button(path, e)
	case "static_select", "multi_static_select":
		if e.has("option_groups") {
			for i, g := range e.list("option_groups") {
				at := fmt.Sprintf("%s/option_groups/%d", path, i)
				c.text(at, g, "label", maxOptionText, "plain_text")
				c.options(at, g, maxOptions)
			}
			return
		}
		c.options(path, e, maxOptions)
	case "radio_buttons", "checkboxes":
		c.options(path, e, 10)
	case "overflow":
		c.options(path, e, 5)
	case "plain_text_input", "email_text_input", "url_text_input", "number_input":
		c.most(path+"/initial_value", e.str("initial_value"), maxInputInitial)
		if n, ok := e["max_length"].(float64); ok && (n < 1 || n > maxInputInitial) {
			c.fail(path+"/max_length", "must be between 1 and %d", maxInputInitial)
		}
		if n, ok := e["min_length"].(float64); ok && (n < 0 || n > maxInputInitial) {
			c.fail(path+"/min_length", "must be between 0 and %d", maxInputInitial)
		}
	}
}

func (c *checker) button(path string, e object) {
	c.text(path, e, "text", maxButton, "plain_text")
	c.most(path+"/value", e.str("value"), maxButtonValue)
	c.most(path+"/url", e.str("url"), maxURL)
	c.most(path+"/accessibility_label", e.str("accessibility_label"), maxButton)
	if style := e.str("style"); style != "" && style != "primary" && style != "danger" {
		c.fail(path+"/style", "must be a valid enum value, not %q", style)
	}
}

// confirm checks a confirmation dialog.
func (c *checker) confirm(path string, d object) {
	c.text(path, d, "title", 100, "plain_text")
	c.text(path, d, "text", 300, "mrkdwn", "plain_text")
	c.text(path, d, "confirm", 30, "plain_text")
	c.text(path, d, "deny", 30, "plain_text")
}

func (c *checker) options(path string, e object, most int) {
	options := e.list("options")
	if len(options) == 0 || len(options) > most {
		c.fail(path+"/options", "between 1 and %d items allowed", most)
	}
	for i, o := range options {
		at := fmt.Sprintf("%s/options/%d", path, i)
		c.text(at, o, "text", maxOptionText, "plain_text", "mrkdwn")
		if o.str("value") == "" {
			c.fail(at+"/value", "must be more than 0 characters")
		}
		c.most(at+"/value", o.str("value"), maxOptionText)
		if o.has("description") {
			c.text(at, o, "description", maxOptionText, "plain_text", "mrkdwn")
		}
	}
}

func (c *checker) input(path string, b object) {
	c.inputs++
	c.text(path, b, "label", maxInputLabel, "plain_text")
	if b.has("hint") {
		c.text(path, b, "hint", maxInputLabel, "plain_text")
	}
	c.element(path+"/element", b.obj("element"), inputTypes)
}

// checkView validates a view for views.open and its kin.
func checkView(v object) error {
	kind := v.str("type")
	on := inModal
	switch kind {
	case "modal":
	case "home":
		on = inHome
	default:
		return invalidView("[ERROR] must be a valid enum value [json-pointer:/view/type]")
	}
	blocks := v.list("blocks")
	c := &checker{surface: on, blockIDs: map[string]bool{}}
	if len(blocks) == 0 && kind == "modal" || !v.has("blocks") {
		c.fail("/view", "missing required field: blocks")
	}
	if len(blocks) > maxViewBlocks {
		c.fail("/view/blocks", "no more than %d items allowed", maxViewBlocks)
	}
	for i, b := range blocks {
		c.block(fmt.Sprintf("/view/blocks/%d", i), b)
	}
	c.most("/view/private_metadata", v.str("private_metadata"), maxPrivateMeta)
	c.most("/view/callback_id", v.str("callback_id"), maxID)
	c.most("/view/external_id", v.str("external_id"), maxID)
	if kind == "modal" {
		c.text("/view", v, "title", maxViewTitle, "plain_text")
		if c.inputs > 0 && !v.has("submit") {
			c.fail("/view", "missing required field: submit")
		}
		for _, key := range []string{"submit", "close"} {
			if v.has(key) {
				c.text("/view", v, key, maxViewTitle, "plain_text")
			}
		}
	}
	if len(c.problems) > 0 {
		return invalidView(c.problems...)
	}
	return nil
}

func invalidView(problems ...string) *apiError {
	return &apiError{code: "invalid_arguments", more: object{"response_metadata": object{"messages": problems}}}
}
