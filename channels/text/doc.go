// Package text prepares the texts of a model for chat platforms. Every chat
// channel splits with it, so that a long answer is cut in the same places
// everywhere: at paragraphs, lines or words, never inside a character, with
// code fences closed and opened again.
package text
