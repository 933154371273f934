package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// Mistake is one thing that is wrong with the settings. Its text is one line
// and says what to write; it never holds a secret.
type Mistake struct {
	File      string // empty: in the environment
	Line, Col int    // from 1; 0: the whole file
	Path      string // "approval.rules[2].when", or the name of a variable
	Msg       string
}

func (m Mistake) Error() string {
	var b strings.Builder
	if m.File != "" {
		b.WriteString(m.File + ":")
		if m.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", m.Line, m.Col)
		}
		b.WriteString(" ")
	}
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Msg)
	return b.String()
}

// Errors are all mistakes, those of the environment first and those of the file
// in its order. Its text is one line for each.
type Errors []Mistake

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// sort puts the mistakes in order and drops repeats.
func (e Errors) sort() Errors {
	slices.SortStableFunc(e, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Path, b.Path))
	})
	return slices.Compact(e)
}

func (e *Errors) variable(name, format string, args ...any) {
	*e = append(*e, Mistake{Path: name, Msg: fmt.Sprintf(format, args...)})
}

// Positions knows where in the file each key stands.
type Positions struct {
	file string
	at   map[string]position
}

type position struct{ line, col int }

// At returns line and column of the value at a path such as
// "approval.rules[2].when", or of the nearest section around it that is in the
// file; 0, 0 if there is none.
func (p Positions) At(path string) (line, col int) {
	for path != "" {
		if at, ok := p.at[path]; ok {
			return at.line, at.col
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0, 0
}

// locate turns a mistake that a package found in its section into one with a
// place in the file.
func (p Positions) locate(err error) Mistake {
	m := Mistake{File: p.file, Msg: err.Error()}
	var c *agent.ConfigError
	if errors.As(err, &c) {
		m.Path, m.Msg = c.Path, c.Msg
	}
	m.Line, m.Col = p.At(m.Path)
	return m
}
