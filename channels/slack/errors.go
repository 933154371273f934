package slack

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// hopeless explains the errors that trying again cannot mend.
func hopeless(err error) (why string, ok bool) {
	code := errorCode(err)
	switch code {
	case "invalid_auth", "not_authed":
		return "Slack refuses the token (" + code + "): check SLACK_BOT_TOKEN and SLACK_APP_TOKEN", true
	case "account_inactive", "token_revoked", "token_expired":
		return "the token is not valid any more (" + code + "): install the app again and set the new token", true
	case "missing_scope":
		return "the token lacks a scope (" + code + neededScope(err) + "): SLACK_APP_TOKEN needs connections:write, the bot token what the manifest lists", true
	case "not_allowed_token_type":
		return "a token of another kind is wanted (" + code + "): SLACK_BOT_TOKEN is xoxb-…, SLACK_APP_TOKEN is xapp-…", true
	case "team_access_not_granted", "access_denied", "org_login_required", "ekm_access_denied":
		return "the workspace denies access (" + code + "): ask its administrators", true
	}
	return "", false
}

func neededScope(err error) string {
	var e slackgo.SlackErrorResponse
	if errors.As(err, &e) && e.Needed != "" {
		return ", needed: " + e.Needed
	}
	return ""
}

// errorCode is Slack's own code for an error, "" if Slack did not answer with one.
func errorCode(err error) string {
	var e slackgo.SlackErrorResponse
	if errors.As(err, &e) {
		return e.Err
	}
	return ""
}

// explain says what is wrong, for clawbot doctor.
func explain(err error) string {
	if why, ok := hopeless(err); ok {
		return why
	}
	return "Slack cannot be reached: " + err.Error()
}

// passing are Slack's codes for troubles of its own. Every other code is a
// refusal that will be the same next time.
var passing = map[string]bool{
	"internal_error": true, "fatal_error": true, "service_unavailable": true, "request_timeout": true,
	"team_added_to_org": true, "accesslimited": true, "temporarily_unavailable": true,
}

// noPauseNamed is how long to wait where Slack limits calls without saying how long.
const noPauseNamed = 5 * time.Second

func isRateLimit(err error) bool {
	var e *slackgo.RateLimitedError
	code := errorCode(err)
	// A limit also comes as an error inside a 200, without Retry-After.
	return errors.As(err, &e) || code == "ratelimited" || code == "rate_limited" || code == "message_limit_exceeded"
}

// sendError tells the engine what an error of a call means for a delivery.
func sendError(err error) *agent.SendError {
	var already *agent.SendError
	var limited *slackgo.RateLimitedError
	var status slackgo.StatusCodeError
	code := errorCode(err)
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &limited):
		return &agent.SendError{Reason: "ratelimited", RetryAfter: max(limited.RetryAfter, time.Second)}
	case isRateLimit(err):
		return &agent.SendError{Reason: code, RetryAfter: noPauseNamed}
	case code != "":
		return &agent.SendError{Reason: code, Permanent: !passing[code]}
	case errors.As(err, &status):
		return &agent.SendError{Reason: fmt.Sprintf("http_%d", status.Code),
			Permanent: status.Code >= 400 && status.Code < 500 && status.Code != http.StatusTooManyRequests && status.Code != http.StatusRequestTimeout}
	}
	return &agent.SendError{Reason: "network", Err: err}
}
