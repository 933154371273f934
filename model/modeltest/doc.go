// Package modeltest is a fake model server: a real HTTP server on loopback that
// speaks OpenAI's Chat Completions and Anthropic's Messages, both streaming,
// from one script. It stands where the provider would stand, so that tests and
// black-box checks go through the real provider code and the real SDKs.
//
// What comes in is checked as strictly as the real services do, or more: a
// request that breaks a rule is answered with status 400, the rule and the ids
// it was broken with, and fails the test that started the server. What goes out
// is cut into small pieces, with the comments, pings and unknown events that
// clients must bear, and can fail in every way that networks and providers do.
//
//	srv := modeltest.Start(t)
//	srv.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`))
//	srv.Reply(modeltest.Text("Written."))
//	m, err := openai.New(openai.Config{Model: "test", APIKey: modeltest.Key, BaseURL: srv.OpenAIBaseURL()})
//
// Which reply answers a request is found in this order: rules of On and OnFunc
// that still have one; scripts of Each; the common queue of Reply; the handler
// of Default. A request that nothing answers gets status 400.
package modeltest
