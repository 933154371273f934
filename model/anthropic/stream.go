package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// attempt makes one request and reads its stream to the end.
func (m *Model) attempt(ctx context.Context, params anthropic.MessageNewParams) (agent.ModelReply, error) {
	var res *http.Response
	// The decoder is used directly, as in package openai: the SDK's own stream
	// turns an error event into text with the address in it.
	if err := m.service.NewStreaming(ctx, params, option.WithResponseInto(&res)).Err(); err != nil {
		return agent.ModelReply{}, err
	}
	decoder := ssestream.NewDecoder(res)
	defer decoder.Close()
	return m.read(decoder)
}

// read joins the events up to message_stop. Whatever ends before it is an error.
func (m *Model) read(decoder ssestream.Decoder) (agent.ModelReply, error) {
	var answer provider.Answer
	var stop anthropic.StopReason
	inputs := map[int64]string{} // of calls that came whole with their start
	for decoder.Next() {
		data := bytes.TrimSpace(decoder.Event().Data)
		var event anthropic.MessageStreamEventUnion
		if len(data) == 0 {
			continue
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return agent.ModelReply{}, provider.Broken("an event of the stream is no JSON")
		}
		var err error
		switch event.Type { // others, such as ping, may come at any time
		case "error":
			return agent.ModelReply{}, m.scrubber.FromEvent(provider.ReadDetail(data))
		case "message_start":
			usage := event.Message.Usage
			answer.InputTokens = int(usage.InputTokens + usage.CacheCreationInputTokens + usage.CacheReadInputTokens)
			answer.OutputTokens = int(usage.OutputTokens)
		case "content_block_start":
			switch block := event.ContentBlock; block.Type {
			case "text":
				err = answer.AddText(block.Text)
			case "tool_use":
				inputs[event.Index] = input(event)
				err = answer.AddCall(event.Index, block.ID, block.Name, "")
			}
		case "content_block_delta":
			switch delta := event.Delta; delta.Type {
			case "text_delta":
				err = answer.AddText(delta.Text)
			case "input_json_delta":
				if _, ok := inputs[event.Index]; ok && delta.PartialJSON != "" {
					inputs[event.Index] = ""
					err = answer.AddCall(event.Index, "", "", delta.PartialJSON)
				}
			}
		case "message_delta":
			if event.Delta.StopReason != "" {
				stop = event.Delta.StopReason
			}
			answer.OutputTokens = max(answer.OutputTokens, int(event.Usage.OutputTokens)) // cumulative
		case "message_stop":
			if stop == "" {
				return agent.ModelReply{}, provider.Broken("the stream ended without a reason to stop")
			}
			for index, input := range inputs {
				if err := answer.AddCall(index, "", "", input); err != nil {
					return agent.ModelReply{}, err
				}
			}
			return answer.Reply(stopReason(stop)), nil
		}
		if err != nil {
			return agent.ModelReply{}, err
		}
	}
	if err := decoder.Err(); err != nil {
		return agent.ModelReply{}, err
	}
	return agent.ModelReply{}, provider.Broken("the stream was cut")
}

// input returns the arguments that a call's start holds, an empty object as a
// rule. They count if no piece of arguments follows, as for tools without any.
func input(event anthropic.MessageStreamEventUnion) string {
	if raw := event.ContentBlock.JSON.Input.Raw(); raw != "" && raw != "null" {
		return raw
	}
	return "{}"
}

func stopReason(stop anthropic.StopReason) agent.StopReason {
	switch stop {
	case "max_tokens", "model_context_window_exceeded":
		return agent.StopLength
	case "refusal":
		return agent.StopFilter
	default: // whether there are calls decides
		return agent.StopEnd
	}
}
