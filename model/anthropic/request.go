package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// params turns a request into the provider's form.
func (m *Model) params(req agent.ModelRequest) (anthropic.MessageNewParams, error) {
	history := provider.History(req.Messages)
	params := anthropic.MessageNewParams{
		Model:     m.name,
		MaxTokens: m.maxTokens,
	}
	if strings.TrimSpace(req.System) != "" {
		params.System = []anthropic.TextBlockParam{{Text: req.System}}
	}
	for _, message := range history {
		add(&params, message)
	}
	tools, err := m.specs.Of(req.Tools)
	if err != nil {
		return params, err
	}
	called := provider.HasCalls(history)
	if req.NoTools && !called {
		return params, nil
	}
	if len(tools) == 0 && called { // the API wants a definition while the history has calls
		req.NoTools = true
		for _, past := range provider.PastDefinitions(history) {
			tools = append(tools, encodeTool(past))
		}
	}
	params.Tools = tools
	if req.NoTools && len(params.Tools) > 0 {
		params.ToolChoice.OfNone = &anthropic.ToolChoiceNoneParam{}
	}
	return params, nil
}

// add appends one message as blocks. Roles must alternate, and the results of a
// batch stand in one user message before any text; both come of adding to the
// last message while its role is the same, because results follow their calls.
func add(params *anthropic.MessageNewParams, message agent.Message) {
	role := anthropic.MessageParamRoleUser
	var blocks []anthropic.ContentBlockParamUnion
	switch message.Role {
	case agent.RoleTool:
		blocks = append(blocks, anthropic.NewToolResultBlock(string(message.CallID), message.Text, message.Failed))
	case agent.RoleAssistant:
		role = anthropic.MessageParamRoleAssistant
		if message.Text != "" {
			blocks = append(blocks, anthropic.NewTextBlock(message.Text))
		}
		for _, call := range message.Calls {
			blocks = append(blocks, anthropic.NewToolUseBlock(string(call.ID), json.RawMessage(call.Arguments), call.Tool))
		}
	default:
		blocks = append(blocks, anthropic.NewTextBlock(message.Text))
	}
	if n := len(params.Messages); n > 0 && params.Messages[n-1].Role == role {
		params.Messages[n-1].Content = append(params.Messages[n-1].Content, blocks...)
		return
	}
	params.Messages = append(params.Messages, anthropic.MessageParam{Role: role, Content: blocks})
}

func encodeTool(tool provider.Definition) anthropic.ToolUnionParam {
	schema, _ := json.Marshal(tool.Schema) // it was decoded from JSON
	out := &anthropic.ToolParam{
		Name: tool.Name,
		// The SDK's own form would lose the keywords that it does not know.
		InputSchema: param.Override[anthropic.ToolInputSchemaParam](json.RawMessage(schema)),
	}
	if tool.Description != "" {
		out.Description = anthropic.String(tool.Description)
	}
	return anthropic.ToolUnionParam{OfTool: out}
}
