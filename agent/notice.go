package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// cutNotice stands behind an answer that the model could not finish.
const cutNotice = "(The answer ends here because it reached the model's length limit.)"

// noOutput stands for a successful result without text.
const noOutput = "(no output)"

// What people are told when something fails: one sentence, with an id that the
// log bears too; never a stack, an address or a secret.
func notice(id TurnID, cause error) string {
	what := "Something went wrong on my side and I had to stop"
	switch {
	case errors.Is(cause, ErrModelAuth):
		what = "I cannot answer, because the model's provider refuses the key; an operator has to look at it"
	case errors.Is(cause, ErrModelUnavailable):
		what = "I cannot answer, because the model cannot be reached right now; please try again later"
	case errors.Is(cause, ErrModelRefused):
		what = "I cannot answer, because the model's provider refuses the request; an operator has to look at it"
	case errors.Is(cause, errTurnTimeout):
		what = "I ran out of time for this and stopped"
	case errors.Is(cause, errForeign):
		what = "I had to stop, because a stored result is not the one that I stored; an operator has to look at it"
	case errors.Is(cause, errLoop):
		what = "I went round in circles with the same calls and stopped"
	case errors.Is(cause, errBroken):
		what = "I had to stop, because this went wrong several times in a row; an operator has to look at it"
	case errors.Is(cause, errEmptyAnswer):
		what = "The model returned an empty answer"
	case errors.Is(cause, errFiltered):
		what = "The model's provider withheld the answer"
	}
	return fmt.Sprintf("%s (%s).", what, id)
}

func unknownNotice(c ToolCall) string {
	return fmt.Sprintf("I was stopped while %s ran, so I do not know whether it took effect. It will not run again by itself; please check by hand (%s, %s).",
		c.Tool, c.Turn, c.ID)
}

// deniedNotice is posted where a refusal ends the turn.
func deniedNotice(c ToolCall) string {
	why := "was denied"
	switch c.Status {
	case CallExpired:
		why = "was not decided in time"
	case CallUndeliverable:
		why = "could not be put to anybody"
	}
	return fmt.Sprintf("I stopped here, because %s %s (%s).", toolName(c.Tool), why, c.Turn)
}

func deafNotice(c ToolCall) string {
	return fmt.Sprintf("%s did not stop when it had to, so I do not know whether it took effect. It will not run again by itself; please check by hand (%s, %s).",
		c.Tool, c.Turn, c.ID)
}

func undeliverableNotice(tool string, id ApprovalID) string {
	return fmt.Sprintf("%s was not executed, because the question whether it may run could not be shown here (%s).", tool, id)
}

var (
	errTurnTimeout = errors.New("turn ran out of time")
	errLoop        = errors.New("the model repeats its calls")
	errBroken      = errors.New("turn was interrupted too often")
	errEmptyAnswer = errors.New("the model returned an empty answer")
	errFiltered    = errors.New("the answer was withheld")
)

// failureText is the result that the model reads for a call without success. It
// names what happened, so that nobody is said to have denied what nobody saw.
func failureText(id CallID, status CallStatus, text string) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // the frames within stay as they are
	if err := enc.Encode(struct {
		Success bool       `json:"success"`
		Outcome CallStatus `json:"outcome"`
		Error   string     `json:"error"`
		CallID  CallID     `json:"tool_call_id"`
	}{false, status, text, id}); err != nil {
		return text
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// refusalText words the end of a call that did not run.
func refusalText(a Approval) (CallStatus, string) {
	with := func(text string) string {
		if a.Reason != "" {
			return text + ": " + a.Reason
		}
		return text
	}
	switch a.Status {
	case ApprovalDenied:
		return CallDenied, with("Denied by a person")
	case ApprovalExpired:
		return CallExpired, "Not executed: nobody decided before the deadline. Nobody denied it either"
	case ApprovalCancelled:
		return CallCancelled, with("Not executed: the question was cancelled")
	case ApprovalUndeliverable:
		return CallUndeliverable, with("Not executed: the question could not be shown to anybody")
	default:
		return CallBlocked, "Not executed: the stored decision is not understood"
	}
}
