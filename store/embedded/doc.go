// Package embedded runs clawbot's private Postgres, for those who have not
// set DATABASE_URL.
//
// [Start] is for the process that serves: it takes the data directory for
// itself, makes a database in it if there is none, and runs Postgres until
// [Server.Stop] or until the process ends, however it ends. [Attach] is for
// short commands beside it: they use the running server, or run it themselves
// for as long as they need it.
//
//	DataDir/
//	  clawbot.lock     locked by the process that runs Postgres; says which
//	  clawbot.guests   locked, shared, by commands that use another's Postgres
//	  postgres.lock    locked by every Postgres process on the cluster
//	  postgres.keys    the passwords of both roles, mode 0600
//	  postgres.log     what Postgres logs, and .1 before it
//	  postgres/        the cluster, with the file clawbot.cluster as our mark
//	  postgres.init-*  a cluster being made; removed if that was broken off
//
// # What it refuses
//
// A directory with anything in it but our mark is left as it is. So is a
// cluster of another major version, and a data directory that another clawbot
// is using.
//
// # Who may do what
//
// PostgreSQL runs as this user, or, if that is root, as postgres or nobody. It
// listens on a Unix socket in the cluster's directory and nowhere else, and
// admits two roles with passwords, to one database: clawbot_owner owns it and
// migrates, clawbot is the service and has the rights that migrations give it.
// The superuser has no password and cannot log in; what needs it is done in
// single-user mode before anyone else knows the cluster.
package embedded
