// Package pgtest gives tests real Postgres databases.
//
//	dsn := pgtest.Empty(t)                             // an empty database
//	dsn := pgtest.Database(t, "store-"+pgtest.Hash(migrations.FS), migrate) // a migrated one
//	srv := pgtest.Dedicated(t); srv.Kill(); srv.Start() // a server of one's own
//	srv, err := pgtest.New(ctx, log)                   // with fsync and without a test, for benchmarks
//
// All test binaries of one checkout share a server. The first that needs it
// starts it, in memory where that can be had and else under the temporary
// directory. The others join, and it ends when the last of them has ended,
// however that ended:
//
//	test binaries ──hold the writing end of──► alive (a named pipe)
//	                                             │ end of file when none is left
//	                                             ▼
//	guard (a shell) ── stops Postgres, removes the server's directory
//
// Each server lives in a directory of its own, so nobody waits for one that
// is just ending: who comes too late to join starts the next. The guard holds
// a lock on its directory; a directory without a guard was left by a killed
// one, and the next start stops its Postgres and removes it.
//
// If CLAWBOT_TEST_POSTGRES is set, it is the URL of a server to use instead,
// with a role that may create databases. Its templates stay there for the
// next run.
package pgtest
