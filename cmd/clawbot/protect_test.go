package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/clawbot/clawbot/cmd/clawbot/settings"
)

// A file that a secret is read from is out of the tools' reach.
func TestSecretFilesAreProtected(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "workspace", "openai.key")
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("canary-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Load(envconfig.MapLookuper(map[string]string{
		"CLAWBOT_DATA_DIR": filepath.Join(dir, "data"), "OPENAI_API_KEY_FILE": key}))
	if err != nil {
		t.Fatal(err)
	}
	s.Tools.Workspace = filepath.Dir(key)
	s.Tools.Shell.Timeout = time.Minute
	a := &app{Settings: s}
	if _, err := a.toolbox(nil); err == nil || !strings.Contains(err.Error(), "which no tool may write") {
		t.Errorf("a workspace with a secret's file in it was taken: %v", err)
	}
}
