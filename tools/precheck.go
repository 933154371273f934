package tools

import (
	"encoding/json"

	"github.com/clawbot/clawbot/agent"
)

// precheck is what a built-in tool can say of its arguments beyond its schema,
// without looking at the world. It runs before the policy, so that nobody is
// asked about a call that cannot run. (A schema with oneOf or lookahead would
// say the same, and some providers refuse such schemas.)
func precheck(t agent.Tool) func(args []byte) error {
	if t.Owner != Owner {
		return nil
	}
	switch t.Name {
	case "read_file", "list_dir", "write_file":
		return func(raw []byte) error {
			var args struct{ Path string }
			if err := json.Unmarshal(raw, &args); err != nil {
				return err
			}
			_, err := local(args.Path)
			return err
		}
	case "shell":
		return func(raw []byte) error {
			var args struct{ Workdir string }
			if err := json.Unmarshal(raw, &args); err != nil || args.Workdir == "" {
				return err
			}
			_, err := local(args.Workdir)
			return err
		}
	case "http_fetch":
		return func(raw []byte) error {
			var args struct{ URL string }
			if err := json.Unmarshal(raw, &args); err != nil {
				return err
			}
			_, err := parseURL(args.URL)
			return err
		}
	case "cron_add":
		return func(raw []byte) error {
			var args jobArgs
			if err := json.Unmarshal(raw, &args); err != nil {
				return err
			}
			_, err := args.when()
			return err
		}
	}
	return nil
}
