package approval

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"

	"github.com/clawbot/clawbot/agent"
)

// What one evaluation may take, so that arguments made for it cannot burn the
// processor. The cost is CEL's own unit: a search through 1 MiB of arguments is
// about a hundred thousand. The time is a second net and wide, because passing
// it refuses the call: a busy machine must not.
const (
	conditionCost   = 5_000_000
	conditionMemory = 4_000_000 // elements and bytes of intermediate values
	conditionTime   = 2 * time.Second
	conditionRegex  = 5_000 // size of a compiled regular expression
	conditionLength = 10_000
)

// conditionEnv declares what a Condition can see.
func conditionEnv() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("tool", cel.StringType),
		cel.Variable("actor", cel.StringType),
		cel.Variable("channel", cel.StringType),
		cel.Variable("session", cel.MapType(cel.StringType, cel.StringType)),
		ext.Strings(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(conditionLength),
		cel.RegexProgramSizeLimit(conditionRegex),
		cel.ASTValidators(
			cel.ValidateRegexLiterals(),
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
		),
	)
}

// compile checks a condition. The mistakes name the column within it.
func (c Condition) compile(env *cel.Env) (cel.Program, []string) {
	ast, issues := env.Compile(string(c))
	if issues.Err() != nil {
		var msgs []string
		for _, e := range issues.Errors() {
			where := fmt.Sprintf("column %d", e.Location.Column()+1)
			if e.Location.Line() > 1 {
				where = fmt.Sprintf("line %d, %s", e.Location.Line(), where)
			}
			msgs = append(msgs, where+" of the condition: "+plainCEL(e.Message))
		}
		return nil, msgs
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, []string{fmt.Sprintf("the condition is of type %s; write one that is true or false", t)}
	}
	program, err := env.Program(ast,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(conditionCost),
		cel.MemoryLimit(conditionMemory),
		cel.InterruptCheckFrequency(100),
	)
	if err != nil {
		return nil, []string{"the condition cannot be compiled: " + plainCEL(err.Error())}
	}
	return program, nil
}

var (
	celContainer = regexp.MustCompile(` \(in container '[^']*'\)`)
	celExpecting = regexp.MustCompile(` expecting \{.*\}$`)
)

// plainCEL shortens CEL's own words to what helps the reader of a settings file.
func plainCEL(msg string) string {
	msg, _, _ = strings.Cut(msg, "\n")
	msg = celContainer.ReplaceAllString(msg, "")
	msg = celExpecting.ReplaceAllString(msg, "")
	if strings.HasPrefix(msg, "undeclared reference") && !strings.Contains(msg, "did you mean") {
		msg += "; args, tool, actor, channel and session can be used"
	}
	return msg
}

// problem is why a condition could not be evaluated, in words that hold nothing
// of the arguments; CEL's own may quote them.
type problem string

const (
	problemMissing problem = "a value that it reads is missing"
	problemType    problem = "a value that it reads has another type than it expects"
	problemCost    problem = "it takes too long on these arguments"
	problemOther   problem = "it fails on these arguments"
	problemResult  problem = "its result is neither true nor false"
)

// holds evaluates a compiled condition; a problem is neither yes nor no.
func holds(program cel.Program, vars map[string]any) (bool, problem) {
	ctx, cancel := context.WithTimeout(context.Background(), conditionTime)
	defer cancel()
	value, _, err := program.ContextEval(ctx, vars)
	if err == nil {
		yes, ok := value.(types.Bool)
		if !ok {
			return false, problemResult
		}
		return bool(yes), ""
	}
	var cancelled interpreter.EvalCancelledError
	switch text := err.Error(); {
	case errors.As(err, &cancelled), errors.Is(err, interpreter.InterruptError{}), ctx.Err() != nil,
		strings.Contains(text, "limit exceeded"):
		return false, problemCost
	case strings.HasPrefix(text, "no such key"), strings.HasPrefix(text, "no such attribute"):
		return false, problemMissing
	case strings.HasPrefix(text, "no such overload"):
		return false, problemType
	default:
		return false, problemOther
	}
}

// variables are what conditions see of a call.
func variables(q agent.Question, args map[string]any) map[string]any {
	return map[string]any{
		"args":    args,
		"tool":    q.Tool.Name,
		"actor":   q.Origin.Author.String(),
		"channel": string(q.Origin.Channel),
		"session": map[string]string{
			"workspace":    q.Origin.Workspace,
			"conversation": q.Origin.Conversation,
			"thread":       q.Origin.Thread,
			"id":           string(q.Session),
		},
	}
}
