package tools

import "github.com/clawbot/clawbot/agent"

func giveToSandboxUser(string) {}

type Outbox interface{}
type Jobs interface{}
type Resolver interface{}

func shell(cfg Config, dir string, ws workspace) (agent.Tool, error) { return agent.Tool{}, nil }
func httpFetch(cfg HTTPFetch, r Resolver) agent.Tool                 { return agent.Tool{} }
func sendMessage(o Outbox) agent.Tool                                { return agent.Tool{} }
func cronAdd(j Jobs, now any) agent.Tool                             { return agent.Tool{} }
func cronList(j Jobs) agent.Tool                                     { return agent.Tool{} }
func cronRemove(j Jobs) agent.Tool                                   { return agent.Tool{} }
