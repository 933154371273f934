// Package anthropic is the model provider for Anthropic's Messages and the
// servers that speak them too. A neutral history comes in (request.go), one
// streamed answer per attempt is read to its proper end (stream.go), and a whole
// ModelReply or an error that says whose fault it is goes out.
//
// It refuses to send a tool that the API would refuse, to follow redirects, and
// to return anything of a stream that was cut. It has no state between requests
// and no goroutines of its own. Package openai has the same files in the same
// order.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/provider"
)

// DefaultMaxTokens is what every current model of the API can write in one answer.
const DefaultMaxTokens = 8192

// Config is all that the provider knows; it reads nothing from the environment.
type Config struct {
	// Model is the name of the model, e.g. "claude-sonnet-4-5". Required.
	Model string
	// APIKey is sent in the header X-Api-Key. Empty sends none, for local servers
	// that need none.
	APIKey string
	// BaseURL is what stands before "v1/messages". Empty means Anthropic's own.
	BaseURL string
	// MaxTokens bounds one answer; the API insists on a bound. 0 means
	// DefaultMaxTokens.
	MaxTokens int
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
	name      string
	maxTokens int64
	retries   int
	scrubber  provider.Scrubber
	service   anthropic.MessageService
	specs     provider.Specs[anthropic.ToolUnionParam]
}

var _ agent.Model = (*Model)(nil)

// New returns the model. It does not contact the server.
func New(cfg Config) (*Model, error) {
	switch {
	case strings.TrimSpace(cfg.Model) == "":
		return nil, errors.New("anthropic: no model is named")
	case cfg.MaxTokens < 0:
		return nil, errors.New("anthropic: the bound on tokens is negative")
	case cfg.MaxTokens == 0:
		cfg.MaxTokens = DefaultMaxTokens
	}
	key := strings.TrimSpace(cfg.APIKey)
	// The service is made without anthropic.NewClient, which would read keys,
	// profiles, address and headers from the environment and from files. The
	// SDK's own spans are off: another variable could put contents into them.
	options := []option.RequestOption{option.WithEnvironmentProduction(), option.WithMaxRetries(0), option.WithoutOpenTelemetry()}
	secrets := []string{key}
	if cfg.BaseURL != "" {
		password, err := provider.CheckBaseURL(cfg.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("anthropic: %w", err)
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
		name:      cfg.Model,
		maxTokens: int64(cfg.MaxTokens),
		retries:   cfg.MaxRetries,
		scrubber:  scrubber,
		service:   anthropic.NewMessageService(options...),
		specs:     provider.Specs[anthropic.ToolUnionParam]{Encode: encodeTool},
	}, nil
}

// Name returns "anthropic:" and the model's name.
func (m *Model) Name() string { return "anthropic:" + m.name }

// Complete implements agent.Model.
func (m *Model) Complete(ctx context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	params, err := m.params(req)
	if err != nil {
		return agent.ModelReply{}, fmt.Errorf("anthropic: %w", err)
	}
	return provider.Complete(ctx, "anthropic", req, m.retries, m.scrubber, func(ctx context.Context) (agent.ModelReply, error) {
		return m.attempt(ctx, params)
	})
}
