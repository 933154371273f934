package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidateSaysWhatToWrite(t *testing.T) {
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Workspace = " " }, "write a directory"},
		{func(c *Config) { c.Shell.Sandbox = "bwrap" }, "write auto, landlock or none"},
		{func(c *Config) { c.Shell.Sandbox = "" }, "write auto, landlock or none"},
		{func(c *Config) { c.Shell.Timeout = 0 }, "for instance 60s"},
		{func(c *Config) { c.Shell.Timeout = MaxShellTimeout + 1 }, "for instance 60s"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"a.example", "http://b.example/"} }, "allow_hosts[1]"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"*"} }, "write a host as"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"a*.example"} }, "write a host as"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"a.example:0"} }, "no valid port"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"a.example:70000"} }, "no valid port"},
		{func(c *Config) { c.HTTPFetch.AllowHosts = []string{"user@a.example"} }, "write a host as"},
	} {
		c := DefaultConfig()
		if errs := c.Validate(); len(errs) > 0 {
			t.Fatalf("defaults: %v", errs)
		}
		tc.change(&c)
		errs := c.Validate()
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want) {
			t.Errorf("%+v: %v, want one error with %q", c, errs, tc.want)
		}
	}
}

func TestHostRules(t *testing.T) {
	for entry, want := range map[string]hostRule{
		"Example.COM.":         {host: "example.com"},
		"*.example.com":        {host: "example.com", wild: true},
		"*.example.com:8443":   {host: "example.com", wild: true, port: "8443"},
		"127.0.0.1:8080":       {host: "127.0.0.1", port: "8080"},
		"[::1]:8080":           {host: "::1", port: "8080"},
		"::1":                  {host: "::1"},
		"[::ffff:127.0.0.1]:1": {host: "127.0.0.1", port: "1"},
	} {
		got, err := parseHostRule(entry)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", entry, got, err, want)
		}
	}
}

// The agent must not be able to write its own rules (class "configuration is
// code"): a workspace that holds them is refused, however it is spelled.
func TestWorkspaceMustNotHoldProtectedFiles(t *testing.T) {
	base := t.TempDir()
	ws := filepath.Join(base, "ws")
	outside := filepath.Join(base, "outside")
	for _, d := range []string{ws, filepath.Join(ws, "data"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(ws, link); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(outside, "into")
	if err := os.Symlink(filepath.Join(ws, "data"), into); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		workspace, protected string
		refused              bool
	}{
		{ws, filepath.Join(ws, "clawbot.yaml"), true},
		{ws, filepath.Join(ws, "data"), true},
		{ws, filepath.Join(ws, "not", "yet", "there"), true},
		{ws, ws, true},
		{link, filepath.Join(ws, "clawbot.yaml"), true},
		{ws, filepath.Join(link, "clawbot.yaml"), true},
		{ws, into, true},
		{base, filepath.Join(outside, "x"), true},
		{ws, filepath.Join(base, "clawbot.yaml"), false},
		{ws, outside, false},
		{ws, ws + "-other", false},
		{ws, "", false},
	} {
		c := DefaultConfig()
		c.Workspace, c.Protected = tc.workspace, []string{tc.protected}
		_, err := Builtin(c, Deps{})
		if refused := err != nil; refused != tc.refused {
			t.Errorf("workspace %s, protected %s: error %v, want refused = %v", tc.workspace, tc.protected, err, tc.refused)
		}
		if err != nil && !strings.Contains(err.Error(), "tools.workspace") {
			t.Errorf("error does not say what to change: %v", err)
		}
	}
}

func TestWorkspaceIsMade(t *testing.T) {
	c := DefaultConfig()
	c.Workspace = filepath.Join(t.TempDir(), "a", "b")
	if _, err := Builtin(c, Deps{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.Workspace)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode %v, %v, want 0700", info.Mode(), err)
	}
}
