package settings

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of the settings file.
const (
	maxFile  = 1 << 20 // bytes
	maxNodes = 50_000  // counting an anchor's content again for each alias
)

// decode reads the YAML text into target, a pointer to a struct with the
// defaults, and collects every mistake rather than stopping at the first. A key
// that is wrong leaves its default.
func decode(file string, text []byte, target any) (Positions, Errors) {
	d := &decoder{
		file:    file,
		at:      map[string]position{},
		anchors: map[string][]*ast.AnchorNode{},
		open:    map[*ast.AnchorNode]bool{},
		keys:    map[string][]string{},
	}
	d.document(text, reflect.ValueOf(target).Elem())
	return Positions{file, d.at}, d.errs
}

type decoder struct {
	file    string
	at      map[string]position
	errs    Errors
	anchors map[string][]*ast.AnchorNode // by name, in the order of the file
	open    map[*ast.AnchorNode]bool     // those being read
	keys    map[string][]string          // the sections that know a key
	nodes   int
}

func (d *decoder) wrong(at position, path, format string, args ...any) {
	d.errs = append(d.errs, Mistake{d.file, at.line, at.col, path, fmt.Sprintf(format, args...)})
}

func (d *decoder) document(text []byte, target reflect.Value) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if at, ok := badText(text); !ok {
		d.wrong(at, "", "a character that is not UTF-8 or not printable; save the file as UTF-8 text")
		return
	}
	f, err := parse(text)
	if err != nil {
		d.syntax(text, err)
		return
	}
	var bodies []ast.Node
	for _, doc := range f.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) == 0 {
		return
	}
	for _, more := range bodies[1:] {
		d.wrong(place(more, position{1, 1}), "", "a second document begins here; write one document, without a line ---")
	}
	ast.Walk(anchorFinder(d.anchors), bodies[0])
	d.index(target.Type(), "")
	d.value(bodies[0], target, "", position{1, 1})
}

// parse is parser.ParseBytes with a panic turned into an error.
func parse(text []byte) (f *ast.File, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the text confuses the YAML parser; write it simpler")
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// badText finds the first byte that YAML does not allow.
func badText(text []byte) (position, bool) {
	line, col := 1, 1
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size <= 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			return position{line, col}, false
		}
		col++
		if r == '\n' {
			line, col = line+1, 1
		}
		text = text[size:]
	}
	return position{}, true
}

// syntax tells of a file that is no YAML. The parser stops at the first such
// mistake, so there is one only.
func (d *decoder) syntax(text []byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && strings.TrimSpace(line) != "" {
			d.wrong(position{i + 1, tab + 1}, "", "a tab indents this line; write spaces")
			return
		}
	}
	at, msg := position{1, 1}, err.Error()
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		msg = syntax.Message
		if syntax.Token != nil {
			at = position{syntax.Token.Position.Line, syntax.Token.Position.Column}
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	d.wrong(at, "", "this is no YAML: %s; look at indentation, colons and quotes here and in the line before", msg)
}

// anchorFinder collects the anchors of a document.
type anchorFinder map[string][]*ast.AnchorNode

// Visit implements ast.Visitor.
func (f anchorFinder) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		name := a.Name.GetToken().Value
		f[name] = append(f[name], a)
	}
	return f
}

// index notes which sections know which key, so that a key in the wrong section
// can be sent to the right one.
func (d *decoder) index(t reflect.Type, path string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		d.index(t.Elem(), path)
	case reflect.Map:
		d.index(t.Elem(), join(path, "NAME"))
	case reflect.Struct:
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				d.keys[key] = append(d.keys[key], path)
				d.index(t.Field(i).Type, join(path, key))
			}
		}
	}
}

func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" {
		return ""
	}
	return key
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// place returns where a node stands, or the fallback if it does not know.
func place(n ast.Node, fallback position) position {
	for {
		switch m := n.(type) {
		case *ast.MappingNode: // its own token is the first colon
			if len(m.Values) == 0 || m.IsFlowStyle {
				return at(m.Start, fallback)
			}
			n = m.Values[0]
			continue
		case *ast.MappingValueNode:
			n = m.Key
			continue
		}
		if n == nil || reflect.ValueOf(n).IsNil() {
			return fallback
		}
		return at(n.GetToken(), fallback)
	}
}

func at(t *token.Token, fallback position) position {
	if t == nil || t.Position == nil || t.Position.Line < 1 {
		return fallback
	}
	return position{t.Position.Line, max(1, t.Position.Column)}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value reads a node into v. key is where its key stands, for values that have
// no place of their own.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, key position) {
	here := place(n, key)
	_, null := n.(*ast.NullNode)
	if null {
		here = key
	}
	if _, known := d.at[path]; !known && path != "" {
		d.at[path] = here
	}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.wrong(here, path, "the aliases make the file too large; write it without")
		}
		return
	}
	switch m := n.(type) {
	case *ast.AnchorNode:
		d.open[m] = true
		d.value(m.Value, v, path, here)
		delete(d.open, m)
		return
	case *ast.AliasNode:
		if a := d.anchor(m, path); a != nil {
			d.value(a, v, path, here)
		}
		return
	case *ast.TagNode:
		d.wrong(here, path, "tags such as %s are not known; write the value alone, in quotes if it is text", m.GetToken().Value)
		return
	}
	t := v.Type()
	switch {
	case reflect.PointerTo(t).Implements(textType):
		if text, ok := d.text(n, path, here); ok {
			if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
				d.wrong(here, path, "%v", err)
			}
		}
	case t == durationType:
		d.duration(n, v, path, here)
	case t.Kind() == reflect.Pointer:
		into := reflect.New(t.Elem())
		before := len(d.errs)
		d.value(n, into.Elem(), path, key)
		if len(d.errs) == before {
			v.Set(into)
		}
	case t.Kind() == reflect.Struct:
		if !null { // a section whose keys are all commented out
			d.section(n, v, path, here)
		}
	case t.Kind() == reflect.Map:
		if !null {
			d.named(n, v, path, here)
		}
	case t.Kind() == reflect.Slice:
		d.list(n, v, path, here)
	default:
		d.scalar(n, v, path, here)
	}
}

// anchor returns what an alias stands for: the last anchor of that name before it.
func (d *decoder) anchor(alias *ast.AliasNode, path string) *ast.AnchorNode {
	here := place(alias, position{})
	if alias.Value == nil {
		d.wrong(here, path, "the alias has no name; write *NAME")
		return nil
	}
	name := alias.Value.GetToken().Value
	var found *ast.AnchorNode
	for _, a := range d.anchors[name] {
		if at := place(a, position{}); at.line < here.line || at.line == here.line && at.col < here.col {
			found = a
		}
	}
	switch {
	case found == nil:
		d.wrong(here, path, "no anchor before it is called &%s", name)
	case d.open[found]:
		d.wrong(here, path, "the anchor &%s would contain itself", name)
		return nil
	}
	return found
}

// entry is one key of a mapping.
type entry struct {
	name  string
	at    position
	value ast.Node
}

// entries returns the keys of a mapping with those that << merges into it, and
// tells of keys that are there twice.
func (d *decoder) entries(n ast.Node, path string, here position) ([]entry, bool) {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	default:
		return nil, false
	}
	var own, merged []entry
	for _, pair := range pairs {
		at := place(pair.Key, here)
		if pair.Key.IsMergeKey() {
			merged = append(merged, d.merge(pair.Value, path, at)...)
			continue
		}
		var name string
		switch key := pair.Key.(type) {
		case *ast.MappingKeyNode, *ast.AliasNode, *ast.TagNode, *ast.AnchorNode:
			d.wrong(at, path, "this is no plain key; write NAME: VALUE")
			continue
		default:
			name = key.GetToken().Value
		}
		if i := slices.IndexFunc(own, func(e entry) bool { return e.name == name }); i >= 0 {
			d.wrong(at, join(path, name), "this key is here twice, first in line %d; remove one", own[i].at.line)
			continue
		}
		own = append(own, entry{name, at, pair.Value})
	}
	for _, e := range merged {
		if !slices.ContainsFunc(own, func(o entry) bool { return o.name == e.name }) {
			own = append(own, e)
		}
	}
	return own, true
}

// merge returns the keys of what stands behind <<.
func (d *decoder) merge(n ast.Node, path string, here position) []entry {
	if d.nodes++; d.nodes > maxNodes {
		return nil
	}
	switch m := n.(type) {
	case *ast.AnchorNode:
		d.open[m] = true
		defer delete(d.open, m)
		return d.merge(m.Value, path, here)
	case *ast.AliasNode:
		if a := d.anchor(m, path); a != nil {
			return d.merge(a, path, here)
		}
		return nil
	case *ast.SequenceNode:
		var out []entry
		for _, item := range m.Values {
			for _, e := range d.merge(item, path, here) {
				if !slices.ContainsFunc(out, func(o entry) bool { return o.name == e.name }) {
					out = append(out, e) // the first one counts
				}
			}
		}
		return out
	}
	out, ok := d.entries(n, path, here)
	if !ok {
		d.wrong(here, path, "<< takes a section; write << : *NAME")
	}
	return out
}

// section reads a mapping whose keys are the fields of a struct.
func (d *decoder) section(n ast.Node, v reflect.Value, path string, here position) {
	entries, ok := d.entries(n, path, here)
	if !ok {
		d.wrong(here, path, "%s; write a section with the keys %s", describe(n), words(known(v.Type())))
		return
	}
	for _, e := range entries {
		field := -1
		for i := range v.NumField() {
			if keyOf(v.Type().Field(i)) == e.name && e.name != "" {
				field = i
			}
		}
		if field < 0 {
			d.wrong(e.at, join(path, e.name), "this key is unknown; %s", d.suggest(e.name, path, v.Type()))
			continue
		}
		d.value(e.value, v.Field(field), join(path, e.name), e.at)
	}
}

// named reads a mapping whose keys are free.
func (d *decoder) named(n ast.Node, v reflect.Value, path string, here position) {
	entries, ok := d.entries(n, path, here)
	if !ok {
		d.wrong(here, path, "%s; write a section of names", describe(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range entries {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, item, join(path, e.name), e.at)
		out.SetMapIndex(reflect.ValueOf(e.name).Convert(v.Type().Key()), item)
	}
	v.Set(out)
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string, here position) {
	out := reflect.MakeSlice(v.Type(), 0, 0)
	switch m := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for i, item := range m.Values {
			into := reflect.New(v.Type().Elem()).Elem()
			if _, null := item.(*ast.NullNode); null {
				d.wrong(place(item, here), fmt.Sprintf("%s[%d]", path, i), "the entry has no value; write one or remove it")
			} else {
				d.value(item, into, fmt.Sprintf("%s[%d]", path, i), here)
			}
			out = reflect.Append(out, into)
		}
	default:
		d.wrong(here, path, "%s; write a list such as [%s]", describe(n), example(v.Type().Elem()))
		return
	}
	v.Set(out)
}

func (d *decoder) duration(n ast.Node, v reflect.Value, path string, here position) {
	const want = "write a duration with its unit such as 30s, 5m or 1h30m"
	var text string
	switch m := n.(type) {
	case *ast.StringNode:
		text = m.Value
	case *ast.IntegerNode, *ast.FloatNode:
		text = m.GetToken().Value
	default:
		d.wrong(here, path, "%s; %s", describe(n), want)
		return
	}
	parsed, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil {
		d.wrong(here, path, "%s is no duration; %s", show(text), want)
		return
	}
	v.SetInt(int64(parsed))
}

// text returns a scalar that is meant as text. Numbers and words like yes are
// refused, because YAML may have changed them: 0777 is 511.
func (d *decoder) text(n ast.Node, path string, here position) (string, bool) {
	switch m := n.(type) {
	case *ast.StringNode:
		return m.Value, true
	case *ast.LiteralNode:
		return m.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.wrong(here, path, "%s, but text is needed; write it in quotes: %q", describe(n), n.GetToken().Value)
	case *ast.NullNode:
		d.wrong(here, path, `there is no value; write one, "" for blank text, or remove the key`)
	default:
		d.wrong(here, path, "%s; write text", describe(n))
	}
	return "", false
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string, here position) {
	switch v.Kind() {
	case reflect.String:
		if text, ok := d.text(n, path, here); ok {
			v.SetString(text)
		}
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
			return
		}
		d.wrong(here, path, "%s; write true or false", describe(n))
	case reflect.Int:
		var number int64
		ok := false
		// 010 is 8 in some YAML and 10 in other, so only plain numbers are taken.
		if i, is := n.(*ast.IntegerNode); is && plainNumber.MatchString(i.GetToken().Value) {
			switch value := i.Value.(type) {
			case int64:
				number, ok = value, true
			case uint64:
				number, ok = int64(value), value <= 1<<62
			}
		}
		if !ok || v.OverflowInt(number) {
			d.wrong(here, path, "%s; write a whole number such as 2", describe(n))
			return
		}
		v.SetInt(number)
	default:
		panic("settings: no way to read a " + v.Type().String())
	}
}

var plainNumber = regexp.MustCompile(`^[+-]?(0|[1-9][0-9_]*)$`)

// describe names what stands there, for people.
func describe(n ast.Node) string {
	switch m := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section is here"
	case *ast.SequenceNode:
		return "a list is here"
	case *ast.NullNode:
		return "there is no value"
	case *ast.LiteralNode:
		return "a block of text is here"
	case *ast.StringNode:
		return show(m.Value) + " is text"
	case *ast.BoolNode:
		return n.GetToken().Value + " is true or false"
	default:
		return show(n.GetToken().Value) + " is a number"
	}
}

// show quotes a value and cuts it if it is long.
func show(text string) string {
	if utf8.RuneCountInString(text) > 40 {
		text = string([]rune(text)[:40]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

func example(t reflect.Type) string {
	if t.Kind() == reflect.Struct {
		return "{KEY: VALUE}"
	}
	return `"NAME"`
}

// known returns the keys of a section.
func known(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if key := keyOf(t.Field(i)); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// suggest says what could have been meant by an unknown key.
func (d *decoder) suggest(name, path string, t reflect.Type) string {
	siblings := known(t)
	best, distance := "", max(2, len(name)/3)+1
	for _, key := range siblings {
		if n := editDistance(strings.ToLower(name), key); n < distance {
			best, distance = key, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	if elsewhere := d.keys[name]; len(elsewhere) == 1 && elsewhere[0] != "" {
		return "it belongs into the section " + elsewhere[0]
	} else if len(elsewhere) == 1 {
		return "it belongs to the left margin, outside of all sections"
	}
	return "write one of " + words(siblings)
}

func words(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// editDistance counts the single-character changes and swaps of neighbours that
// turn a into b.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
