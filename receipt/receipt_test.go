package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
)

var evidence = agent.Evidence{Session: "ses_1", Turn: "turn_1", Call: "c1", Tool: "note", ArgsSHA256: agent.SHA256(`{}`), Output: "noted"}

func key(t *testing.T) (*Key, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys", "receipt.key")
	k, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k, path
}

// A receipt holds after a restart, for its own result and for no other.
//
// Rows: L97, L99, L100.
func TestReceipt(t *testing.T) {
	k, path := key(t)
	line := k.Sign(evidence)
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Verify(line, evidence); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	for name, change := range map[string]func(*agent.Evidence){
		"session": func(e *agent.Evidence) { e.Session = "ses_2" },
		"turn":    func(e *agent.Evidence) { e.Turn = "turn_2" },
		"call":    func(e *agent.Evidence) { e.Call = "c2" },
		"tool":    func(e *agent.Evidence) { e.Tool = "shell" },
		"args":    func(e *agent.Evidence) { e.ArgsSHA256 = agent.SHA256(`{"x":1}`) },
		"output":  func(e *agent.Evidence) { e.Output += " " },
	} {
		other := evidence
		change(&other)
		if err := k.Verify(line, other); err != ErrMismatch {
			t.Errorf("with another %s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "v1", line[:len(line)-1], line + "00", strings.Replace(line, "v1", "v2", 1), strings.ToUpper(line)[:3] + line[3:]} {
		if err := k.Verify(bad, evidence); err != ErrMismatch {
			t.Errorf("%q: %v", bad, err)
		}
	}
	stranger, _ := key(t)
	if err := stranger.Verify(line, evidence); err != ErrOtherKey {
		t.Errorf("another key: %v", err)
	}
}

// No two results have the same receipt, however their fields are cut.
func TestFieldsAreNotConfused(t *testing.T) {
	k, _ := key(t)
	seen := map[string]string{}
	word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a\x00b", "1:a"})
	rapid.Check(t, func(t *rapid.T) {
		e := agent.Evidence{
			Session: agent.SessionID(word.Draw(t, "session")), Turn: agent.TurnID(word.Draw(t, "turn")), Call: agent.CallID(word.Draw(t, "call")),
			Tool: word.Draw(t, "tool"), ArgsSHA256: word.Draw(t, "args"), Output: word.Draw(t, "output"),
		}
		line, all := k.Sign(e), fmt.Sprintf("%#v", e)
		if before, there := seen[line]; there && before != all {
			t.Fatalf("%s has the receipt of %s", all, before)
		}
		seen[line] = all
	})
}

// The key is made once, whoever comes first, and told by nothing.
func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "receipt.key")
	if _, err := Read(path); err != ErrNoKey {
		t.Errorf("before there is one: %v", err)
	}
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			k, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = k.ID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("keys %v", ids)
			break
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(text))
	for _, printed := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k), k.Sign(evidence)} {
		if strings.Contains(printed, secret) || strings.Contains(printed, string(k.secret)) {
			t.Error("the key is told")
		}
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	for name, text := range map[string]string{"blank": "", "short": "abcd", "no hex": strings.Repeat("x", 64)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(path, "below a file")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
}
