// Package migrations holds the database schema as goose migrations, in the
// order in which they run. Package store applies them; nothing else reads them.
//
// The state rules of package agent are written here a second time, as CHECK and
// UNIQUE constraints, so that a wrong program cannot store a wrong state.
package migrations

import "embed"

// FS holds the *.sql files.
//
//go:embed *.sql
var FS embed.FS
