// Package pgserver runs one PostgreSQL cluster as a child of this process.
//
// It knows programs, accounts, directories and signals, and nothing of
// clawbot's roles, locks or tests: [store/embedded] and [store/pgtest] bring
// those.
//
//	Find ─► Programs            where postgres and initdb are
//	Unprivileged ─► Account     whom they run as; never root
//	Init                        initdb into an empty directory
//	SingleUser                  SQL on a cluster that is not running
//	Start ─► Process            postgres, until it accepts connections
//
// A cluster listens on a Unix socket only. It is in a session of its own, so
// that Ctrl-C in a terminal reaches clawbot and not Postgres. A small shell
// process watches a pipe whose other end is ours and shuts Postgres down when
// that end closes, however we ended: kill -9 leaves no server behind.
//
// [store/embedded]: https://pkg.go.dev/github.com/clawbot/clawbot/store/embedded
// [store/pgtest]: https://pkg.go.dev/github.com/clawbot/clawbot/store/pgtest
package pgserver
