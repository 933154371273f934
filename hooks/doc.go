// Package hooks runs what an operator names in the section hooks of the settings
// file around tool calls: commands and HTTP endpoints. JSON goes in, JSON comes out.
//
// A hook before the call says continue, cancel or rewrite. It fails closed: whatever
// is not one of these three words in time (an error, a wrong exit status, no JSON, an
// unknown word) cancels the call. A hook after the call says nothing that counts; its
// failure is a warning in the turn's timeline.
package hooks
