package openai

import (
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// params turns a request into the provider's form.
func (m *Model) params(req agent.ModelRequest) (openai.ChatCompletionNewParams, error) {
	history := provider.History(req.Messages)
	params := openai.ChatCompletionNewParams{
		Model:         m.name,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if strings.TrimSpace(req.System) != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(req.System))
	}
	for _, message := range history {
		params.Messages = append(params.Messages, encode(message))
	}
	tools, err := m.specs.Of(req.Tools)
	if err != nil {
		return params, err
	}
	if req.NoTools && !provider.HasCalls(history) {
		return params, nil
	}
	params.Tools = tools
	if req.NoTools && len(params.Tools) > 0 { // without tools the API refuses a choice
		params.ToolChoice.OfAuto = openai.String("none")
	}
	return params, nil
}

// encode writes one message. A failed result has no mark of its own here: its
// text says what went wrong.
func encode(message agent.Message) openai.ChatCompletionMessageParamUnion {
	switch message.Role {
	case agent.RoleTool:
		return openai.ToolMessage(message.Text, string(message.CallID))
	case agent.RoleAssistant:
		said := &openai.ChatCompletionAssistantMessageParam{}
		if message.Text != "" {
			said.Content.OfString = openai.String(message.Text)
		}
		for _, call := range message.Calls {
			said.ToolCalls = append(said.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID: string(call.ID),
					Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name:      call.Tool,
						Arguments: call.Arguments,
					},
				},
			})
		}
		return openai.ChatCompletionMessageParamUnion{OfAssistant: said}
	default:
		return openai.UserMessage(message.Text)
	}
}

func encodeTool(tool provider.Definition) openai.ChatCompletionToolUnionParam {
	function := shared.FunctionDefinitionParam{Name: tool.Name, Parameters: tool.Schema}
	if tool.Description != "" {
		function.Description = openai.String(tool.Description)
	}
	return openai.ChatCompletionFunctionTool(function)
}
