// Package openai is the model provider for OpenAI's Chat Completions and the
// many servers that speak them too. A neutral history comes in (request.go), one
// streamed answer per attempt is read to its proper end (stream.go), and a whole
// ModelReply or an error that says whose fault it is goes out.
//
// It refuses to send a tool that the API would refuse, to follow redirects, and
// to return anything of a stream that was cut. It has no state between requests
// and no goroutines of its own. Package anthropic has the same files in the same
// order.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// Config is all that the provider knows; it reads nothing from the environment.
type Config struct {
	// Model is the name of the model, e.g. "gpt-5.1". Required.
	Model string
	// APIKey is sent as bearer token. Empty sends none, for local servers that
	// need none.
	APIKey string
	// BaseURL is what stands before "chat/completions", mostly ending in "/v1/".
	// Empty means OpenAI's own.
	BaseURL string
	// MaxRetries is how many attempts may follow the first one. 0 means 4,
	// negative none.
	MaxRetries int
	// IdleTimeout ends an attempt in which nothing arrives for so long. 0 means
	// 120 s.
	IdleTimeout time.Duration
	// Timeout ends an attempt as a whole. 0 means 10 minutes.
	Timeout time.Duration
	// HTTPClient makes the requests. nil means Go's default transport, which
	// obeys HTTPS_PROXY. Redirects are never followed.
	HTTPClient *http.Client
}

// Model is one model of one server. It is safe for concurrent use.
type Model struct {
	name     string
	retries  int
	scrubber provider.Scrubber
	service  openai.ChatCompletionService
	specs    provider.Specs[openai.ChatCompletionToolUnionParam]
}

var _ agent.Model = (*Model)(nil)

// New returns the model. It does not contact the server.
func New(cfg Config) (*Model, error) {
	if strings.TrimSpace(cfg.Model) == "" {
		return nil, errors.New("openai: no model is named")
	}
	key := strings.TrimSpace(cfg.APIKey)
	// The service is made without openai.NewClient, which would read key, address,
	// organisation and headers from the environment.
	options := []option.RequestOption{option.WithEnvironmentProduction(), option.WithMaxRetries(0)}
	secrets := []string{key}
	if cfg.BaseURL != "" {
		password, err := provider.CheckBaseURL(cfg.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("openai: %w", err)
		}
		secrets = append(secrets, password)
		options = append(options, option.WithBaseURL(cfg.BaseURL))
	}
	if key != "" {
		options = append(options, option.WithAPIKey(key))
	}
	scrubber := provider.NewScrubber(secrets...)
	options = append(options, option.WithHTTPClient(
		provider.NewTransport(cfg.HTTPClient, cfg.IdleTimeout, cfg.Timeout, scrubber)))
	return &Model{
		name:     cfg.Model,
		retries:  cfg.MaxRetries,
		scrubber: scrubber,
		service:  openai.NewChatCompletionService(options...),
		specs:    provider.Specs[openai.ChatCompletionToolUnionParam]{Encode: encodeTool},
	}, nil
}

// Name returns "openai:" and the model's name.
func (m *Model) Name() string { return "openai:" + m.name }

// Complete implements agent.Model.
func (m *Model) Complete(ctx context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	params, err := m.params(req)
	if err != nil {
		return agent.ModelReply{}, fmt.Errorf("openai: %w", err)
	}
	return provider.Complete(ctx, "openai", req, m.retries, m.scrubber, func(ctx context.Context) (agent.ModelReply, error) {
		return m.attempt(ctx, params)
	})
}
