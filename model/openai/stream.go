package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// attempt makes one request and reads its stream to the end.
func (m *Model) attempt(ctx context.Context, params openai.ChatCompletionNewParams) (agent.ModelReply, error) {
	var res *http.Response
	// The SDK's own stream cannot tell [DONE] from a connection that just ended,
	// so its decoder is used directly.
	if err := m.service.NewStreaming(ctx, params, option.WithResponseInto(&res)).Err(); err != nil {
		return agent.ModelReply{}, err
	}
	decoder := ssestream.NewDecoder(res)
	defer decoder.Close()
	return m.read(decoder)
}

// read joins the chunks up to [DONE]. Whatever ends before it is an error.
func (m *Model) read(decoder ssestream.Decoder) (agent.ModelReply, error) {
	var answer provider.Answer
	var finish string
	var refusal bool
	for decoder.Next() {
		data := bytes.TrimSpace(decoder.Event().Data)
		if bytes.Equal(data, []byte("[DONE]")) {
			if finish == "" {
				return agent.ModelReply{}, provider.Broken("the stream ended without a reason to finish")
			}
			if refusal {
				finish = "content_filter"
			}
			return answer.Reply(stopReason(finish)), nil
		}
		if d := provider.ReadDetail(data); d != (provider.Detail{}) {
			return agent.ModelReply{}, m.scrubber.FromEvent(d)
		}
		var chunk openai.ChatCompletionChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return agent.ModelReply{}, provider.Broken("a chunk of the stream is no JSON")
		}
		if chunk.Usage.TotalTokens > 0 {
			answer.InputTokens = int(chunk.Usage.PromptTokens)
			answer.OutputTokens = int(chunk.Usage.CompletionTokens)
		}
		for _, choice := range chunk.Choices { // none in the chunk with the usage
			if choice.Index != 0 {
				continue
			}
			if err := add(&answer, choice.Delta); err != nil {
				return agent.ModelReply{}, err
			}
			if choice.FinishReason != "" {
				finish = choice.FinishReason
			}
			refusal = refusal || choice.Delta.Refusal != ""
		}
	}
	if err := decoder.Err(); err != nil {
		return agent.ModelReply{}, err
	}
	return agent.ModelReply{}, provider.Broken("the stream was cut")
}

func add(answer *provider.Answer, delta openai.ChatCompletionChunkChoiceDelta) error {
	if err := answer.AddText(delta.Content); err != nil {
		return err
	}
	if err := answer.AddText(delta.Refusal); err != nil {
		return err
	}
	for _, piece := range delta.ToolCalls {
		if err := answer.AddCall(piece.Index, piece.ID, piece.Function.Name, piece.Function.Arguments); err != nil {
			return err
		}
	}
	return nil
}

func stopReason(finish string) agent.StopReason {
	switch finish {
	case "length":
		return agent.StopLength
	case "content_filter":
		return agent.StopFilter
	default: // whether there are calls decides; some servers say "stop" with calls
		return agent.StopEnd
	}
}
