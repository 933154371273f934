package slack

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// table draws a table with columns of equal width; Slack's own tables take one
// a message and few characters.
func table(t *extast.Table, src []byte) string {
	var rows [][]string
	var widths []int
	for r := t.FirstChild(); r != nil; r = r.NextSibling() {
		var row []string
		for c := r.FirstChild(); c != nil; c = c.NextSibling() {
			cell := &builder{src: src}
			cell.inlines(c, style{})
			text := words(cell.take())
			if len(widths) == len(row) {
				widths = append(widths, 0)
			}
			widths[len(row)] = max(widths[len(row)], min(units(text), 40))
			row = append(row, text)
			if c.NextSibling() == nil {
				row = append(row, surplus(c, src)...)
			}
		}
		rows = append(rows, row)
	}
	var out strings.Builder
	for i, row := range rows {
		line := ""
		for j, cell := range row {
			if j > 0 {
				line += " | "
			}
			line += cell
			if j < len(widths) {
				line += strings.Repeat(" ", max(0, widths[j]-units(cell)))
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
		if i == 0 {
			for j, w := range widths {
				if j > 0 {
					out.WriteString("-+-")
				}
				out.WriteString(strings.Repeat("-", w))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// surplus is what follows the last cell of a row: cells beyond the columns of
// the table, which the parser drops.
func surplus(last ast.Node, src []byte) []string {
	if last.Lines().Len() == 0 {
		return nil
	}
	rest := src[last.Lines().At(0).Stop:]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	if s := strings.Trim(string(rest), "| \t"); s != "" {
		return []string{s}
	}
	return nil
}
