package agent

import "strings"

// MatchGlob reports whether name matches a pattern of * (any text), ? (one byte) and
// literal bytes. Upper and lower case differ; callers fold both where they mean not to.
// It goes back to the last * only, so it takes at most len(pattern) × len(name) steps.
func MatchGlob(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0 // the last * and where in name it stopped eating
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
