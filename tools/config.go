package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// The values of Shell.Sandbox.
const (
	SandboxAuto     = "auto"
	SandboxLandlock = "landlock"
	SandboxNone     = "none"
)

// MaxShellTimeout is the longest time one command may run.
const MaxShellTimeout = time.Hour

// Config is the part "tools" of the settings file.
type Config struct {
	// Workspace is the directory that the file tools and the shell are confined
	// to. It is made with mode 0700 if it is missing.
	Workspace string    `yaml:"workspace"`
	Shell     Shell     `yaml:"shell"`
	HTTPFetch HTTPFetch `yaml:"http_fetch"`

	// Protected are paths that no tool may write: the settings file, the data
	// directory, key files. A workspace that contains one of them is refused at
	// start. Blank entries are skipped.
	Protected []string `yaml:"-"`
}

// Shell configures the tool that runs commands.
type Shell struct {
	// Enabled offers the tool. False: the model never sees it.
	Enabled bool `yaml:"enabled"`
	// Sandbox is "auto" (the strongest there is; where there is none, clawbot
	// refuses to start), "landlock" (Linux 6.2 and newer, amd64 and arm64), or
	// "none": commands can read and write whatever clawbot's user can, and use
	// the network.
	Sandbox string `yaml:"sandbox"`
	// Timeout is how long a command may run when the call names no time, and the
	// most it may name. Above 0, at most one hour.
	Timeout time.Duration `yaml:"timeout"`
}

// HTTPFetch configures the tool that reads web pages.
type HTTPFetch struct {
	// Enabled offers the tool.
	Enabled bool `yaml:"enabled"`
	// AllowHosts are hosts that are fetched without asking: "example.com",
	// "*.example.com" (any name below it, not itself), or either with a port,
	// "127.0.0.1:8080". An entry also opens private addresses to that host, so a
	// name on this list should be one whose DNS you trust. Empty: each fetch
	// asks, and private addresses are refused.
	AllowHosts []string `yaml:"allow_hosts"`
}

// DefaultConfig is what counts where the settings file says nothing.
func DefaultConfig() Config {
	return Config{
		Workspace: "./workspace",
		Shell:     Shell{Sandbox: SandboxAuto, Timeout: time.Minute},
		HTTPFetch: HTTPFetch{Enabled: true},
	}
}

// Validate returns every mistake, each an *agent.ConfigError. It does not look
// at the file system.
func (c Config) Validate() []error {
	var errs []error
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &agent.ConfigError{Path: "tools." + key, Msg: fmt.Sprintf(format, args...)})
	}
	if strings.TrimSpace(c.Workspace) == "" {
		wrong("workspace", "it is blank; write a directory such as ./workspace")
	}
	switch c.Shell.Sandbox {
	case SandboxAuto, SandboxLandlock, SandboxNone:
	default:
		wrong("shell.sandbox", "%q is unknown; write auto, landlock or none", c.Shell.Sandbox)
	}
	if c.Shell.Timeout <= 0 || c.Shell.Timeout > MaxShellTimeout {
		wrong("shell.timeout", "%v is no time for a command; write one above 0 and up to %v, for instance 60s", c.Shell.Timeout, MaxShellTimeout)
	}
	for i, entry := range c.HTTPFetch.AllowHosts {
		if _, err := parseHostRule(entry); err != nil {
			wrong(fmt.Sprintf("http_fetch.allow_hosts[%d]", i), "%v", err)
		}
	}
	return errs
}

// hostRule is one entry of AllowHosts.
type hostRule struct {
	host string // lower case, without the final dot; an address in its shortest form
	wild bool   // host and the label before it: "*.example.com"
	port string // empty: any
}

func parseHostRule(entry string) (hostRule, error) {
	bad := func(why string) (hostRule, error) {
		return hostRule{}, fmt.Errorf("%q %s: write a host as example.com, *.example.com or 127.0.0.1:8080", entry, why)
	}
	s := strings.ToLower(strings.TrimSpace(entry))
	if s == "" {
		return bad("is empty")
	}
	if strings.Contains(s, "/") || strings.Contains(s, "@") {
		return bad("is an address, not a host")
	}
	var r hostRule
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		r.host = addr.Unmap().String()
		return r, nil
	}
	if host, port, ok := cutPort(s); ok {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return bad("has no valid port")
		}
		s, r.port = host, strconv.Itoa(n)
		if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
			r.host = addr.Unmap().String()
			return r, nil
		}
	}
	s, r.wild = strings.CutPrefix(s, "*.")
	s = strings.TrimSuffix(s, ".")
	if s == "" || strings.ContainsAny(s, "*:[] \t\r\n?#\\") || strings.HasPrefix(s, ".") {
		return bad("is no host")
	}
	r.host = s
	return r, nil
}

// cutPort splits "host:port" and "[v6]:port".
func cutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") || strings.Contains(s[:i], ":") && !strings.HasPrefix(s, "[") {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// openWorkspace makes the workspace if it is missing and returns its absolute
// path without symbolic links.
func openWorkspace(c Config) (string, *os.Root, error) {
	abs, err := filepath.Abs(c.Workspace)
	if err != nil {
		return "", nil, fmt.Errorf("find workspace %s: %w", c.Workspace, err)
	}
	if _, err := os.Stat(abs); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(abs, 0o700); err != nil {
			return "", nil, fmt.Errorf("make workspace: %w", err)
		}
	}
	dir, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", nil, fmt.Errorf("find workspace: %w", err)
	}
	for _, p := range c.Protected {
		if p == "" {
			continue
		}
		inside, err := contains(dir, p)
		if err != nil {
			return "", nil, fmt.Errorf("compare workspace with %s: %w", p, err)
		}
		if inside {
			return "", nil, fmt.Errorf("the workspace %s contains %s, which no tool may write: set tools.workspace to a directory of its own", dir, p)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, fmt.Errorf("open workspace: %w", err)
	}
	return dir, root, nil
}

// contains reports whether path, or what it links to, is dir or lies below it.
// Directories are compared by identity, so spelling, links, bind mounts and
// file systems without upper case make no difference. What does not exist yet
// counts by its nearest parent.
func contains(dir, path string) (bool, error) {
	want, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	starts := []string{abs}
	for p := abs; ; p = filepath.Dir(p) { // the nearest parent that exists, resolved
		if resolved, err := filepath.EvalSymlinks(p); err == nil {
			starts = append(starts, resolved)
			break
		}
		if p == filepath.Dir(p) {
			break
		}
	}
	for _, p := range starts {
		for {
			if info, err := os.Stat(p); err == nil && os.SameFile(info, want) {
				return true, nil
			}
			parent := filepath.Dir(p)
			if parent == p {
				break
			}
			p = parent
		}
	}
	return false, nil
}
