// Package provider holds what the providers of models share, whatever their
// wire form: a history that every provider accepts (History), tool definitions
// (Specs), the joining of a streamed answer (Answer), the HTTP client that
// watches over one attempt (Transport), what an error says and whose fault it is
// (Error, Scrubber), and the loop that makes attempts until one yields a whole
// answer (Complete).
//
// A request runs through it like this:
//
//	ModelRequest ─► History, Specs ─► SDK parameters
//	Complete ─► SDK ─► Transport ─► HTTP … events ─► Answer ─► ModelReply
//
// The SDKs' own retries are off: they end where a stream begins, and a stream
// that is cut must be tried again as a whole. The package owns no goroutine
// that outlives an attempt and reads nothing of the environment; proxies are
// the business of the given http.Client.
package provider
