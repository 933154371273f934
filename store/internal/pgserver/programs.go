package pgserver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that clawbot's schema runs on.
const MinMajor = 14

// ErrNoPrograms says that no usable PostgreSQL is installed.
var ErrNoPrograms = errors.New("no PostgreSQL programs")

// Programs is one installed PostgreSQL.
type Programs struct {
	Dir     string // directory of postgres, initdb and pg_ctl
	Major   int    // 15
	Version string // what postgres --version prints
}

// usualPlaces are where Debian, Homebrew and Postgres.app put programs that
// are not on PATH.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/opt/homebrew/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// Find returns the programs on PATH, or else the newest in the usual places
// of Debian, Homebrew and Postgres.app. With major > 0 only that version will
// do. The error wraps [ErrNoPrograms] and names the command that installs
// them.
func Find(major int) (Programs, error) {
	return find(major, filepath.SplitList(os.Getenv("PATH")), usualPlaces)
}

func find(major int, path, places []string) (Programs, error) {
	var unfit []string
	try := func(dir string) (Programs, bool) {
		p, err := inspect(dir)
		switch {
		case err != nil:
			return p, false
		case p.Major < MinMajor, major > 0 && p.Major != major:
			unfit = append(unfit, fmt.Sprintf("%d in %s", p.Major, dir))
			return p, false
		}
		return p, true
	}

	for _, dir := range path {
		if filepath.IsAbs(dir) {
			if p, ok := try(dir); ok {
				return p, nil
			}
		}
	}
	var dirs []string
	for _, place := range places {
		found, _ := filepath.Glob(place) // the patterns are constants and well-formed
		dirs = append(dirs, found...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(majorInPath(b), majorInPath(a)) })
	for _, dir := range dirs {
		if p, ok := try(dir); ok {
			return p, nil
		}
	}
	return Programs{}, notFound(major, unfit)
}

func notFound(major int, unfit []string) error {
	want, brew := fmt.Sprintf("PostgreSQL %d or newer", MinMajor), "postgresql@17"
	apt := "postgresql"
	if major > 0 {
		want = fmt.Sprintf("PostgreSQL %d", major)
		apt, brew = fmt.Sprintf("postgresql-%d", major), fmt.Sprintf("postgresql@%d", major)
	}
	install := "apt-get install " + apt
	if runtime.GOOS == "darwin" {
		install = "brew install " + brew
	}
	found := ""
	if len(unfit) > 0 {
		slices.Sort(unfit)
		found = " (found only " + strings.Join(slices.Compact(unfit), ", ") + ")"
	}
	return fmt.Errorf("%w: %s is needed%s: run %q, or set DATABASE_URL", ErrNoPrograms, want, found, install)
}

// inspect checks that dir has all the programs and asks for their version.
func inspect(dir string) (Programs, error) {
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return Programs{}, err
		}
	}
	return InDir(dir)
}

var versionNumber = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// InDir describes the programs in dir.
func InDir(dir string) (Programs, error) {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Programs{}, fmt.Errorf("ask postgres in %s for its version: %w", dir, err)
	}
	version := strings.TrimSpace(string(out))
	m := versionNumber.FindStringSubmatch(version)
	if m == nil {
		return Programs{}, fmt.Errorf("read version of postgres in %s: %q is not one", dir, version)
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return Programs{}, fmt.Errorf("read version of postgres in %s: %w", dir, err)
	}
	return Programs{Dir: dir, Major: major, Version: version}, nil
}

var numberInPath = regexp.MustCompile(`(?:/|@)(\d+)(?:\.\d+)*/bin$`)

// majorInPath reads 17 from /usr/lib/postgresql/17/bin, so that the newest is
// asked first; 0 where the path says nothing.
func majorInPath(dir string) int {
	m := numberInPath.FindStringSubmatch(dir)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

func (p Programs) path(name string) string { return filepath.Join(p.Dir, name) }
