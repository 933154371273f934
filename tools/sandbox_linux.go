package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minLandlock is the first version of Landlock that guards truncation, without
// which a command could empty files outside the workspace (Linux 6.2).
const minLandlock = 3

// Limits of a confined command, in bytes and numbers.
const (
	maxFileSize  = 1 << 30
	maxData      = 4 << 30 // per process
	maxOpenFiles = 1024
	maxProcesses = 256 // more than the user has when it starts
)

// SandboxStatus reports what confines commands on this machine.
func SandboxStatus() Status {
	abi := landlockABI()
	none := func(why string) Status { return Status{Sandbox: SandboxNone, Reason: why} }
	switch {
	case seccompArch == 0:
		return none("the system call filter is written for amd64 and arm64 only, this is " + runtime.GOARCH)
	case abi == 0:
		return none("this kernel has no Landlock, or it is switched off at boot (lsm=)")
	case abi < minLandlock:
		return none(fmt.Sprintf("this kernel has version %d of Landlock, at least %d is needed (Linux 6.2)", abi, minLandlock))
	}
	s := Status{Sandbox: SandboxLandlock}
	if os.Geteuid() == 0 {
		s.Limits = append(s.Limits, "clawbot runs as root: commands run as the workspace's owner, or as uid 65534 with the right to pass file modes if that is root")
		return s
	}
	if !canMount(os.TempDir()) {
		s.Limits = append(s.Limits, "there are no user namespaces for clawbot here: commands can change modes and times of its files outside the workspace, though not read or write them")
	}
	if abi < 6 {
		s.Limits = append(s.Limits, "this kernel lets commands send signals to clawbot's other processes (before Linux 6.12)")
	}
	return s
}

func selfExe() (string, error) { return "/proc/self/exe", nil }

// systemDirs are the paths that commands may read and execute, besides the
// workspace. Of /etc only what programs need: settings of other programs live
// there too.
func systemDirs() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/run/current-system",
		"/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/debian_version", "/etc/fonts", "/etc/gitconfig",
		"/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/inputrc", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
		"/etc/ld.so.preload", "/etc/localtime", "/etc/locale.alias", "/etc/locale.conf", "/etc/magic", "/etc/mime.types",
		"/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/profile",
		"/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/shells", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
		"/etc/static", "/etc/terminfo", "/etc/timezone",
		"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version",
		"/proc/sys/kernel/osrelease", "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage",
		"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
	}
}

// sandboxUser says whom commands run as when clawbot is root: the workspace's
// owner, if that is somebody else who can get there. If not, nobody with
// CAP_DAC_OVERRIDE: Landlock still bounds what is reached, and unlike root that
// user can change no modes, signal nobody and is counted by RLIMIT_NPROC.
func sandboxUser(dir string) (uid, gid int, override bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	if uid, gid = ownerOf(dir); uid == 0 {
		return nobody, nobody, true
	}
	for p := dir; p != "/"; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return uid, gid, true
		}
		owner, group := ownerOf(p)
		enter := os.FileMode(0o001)
		switch {
		case owner == uid:
			enter = 0o100
		case group == gid:
			enter = 0o010
		}
		if info.Mode()&enter == 0 {
			return uid, gid, true
		}
	}
	return uid, gid, false
}

// adoptOrphans makes the supervisor the parent of every descendant that loses
// its own, so that none escapes by setsid or a double fork.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	runtime.LockOSThread() // Pdeathsig is about the thread that started the child
	return nil
}

// commandAttr is how the second process starts: in a group of its own, and for
// mounts in a mount namespace, which needs a user namespace unless we are root.
func commandAttr(mounts bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !mounts {
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWNS
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // within the namespace
	}
	return attr
}

// canMount tries whether mountReadOnly works on this machine.
func canMount(dir string) bool {
	if os.Getenv(sandboxMark) != "" {
		return false
	}
	told, err := json.Marshal(spec{Workspace: dir})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{sandboxName, "mounts", string(told), ""}
	cmd.Env = []string{sandboxMark + "=1"}
	cmd.SysProcAttr = commandAttr(true)
	runtime.LockOSThread() // Pdeathsig
	defer runtime.UnlockOSThread()
	return cmd.Run() == nil
}

// mountReadOnly makes all file systems but the workspace read-only in this
// process's mount namespace. Landlock has no rights for changing modes, owners,
// times and attributes; this refuses them.
func mountReadOnly(workspace string) error {
	readOnly := func(path string, attr unix.MountAttr) error {
		return unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(workspace, workspace, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount the workspace: %w", err)
	}
	if err := readOnly("/", unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("mount read-only: %w", err)
	}
	if err := readOnly(workspace, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("mount the workspace writable: %w", err)
	}
	return nil
}

// enterMounted goes to the working directory by way of the workspace's new
// mount; the open directory handed down lies on the old one. It must be the
// same directory, so that a link swapped in meanwhile changes nothing.
func enterMounted(s spec, dir int) error {
	ws, err := unix.Open(s.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	at, err := unix.Openat2(ws, s.Workdir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	var want, got unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &want), unix.Fstat(at, &got)); err != nil {
		return err
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return errors.New("it was replaced meanwhile")
	}
	return unix.Fchdir(at)
}

// stopTree holds all descendants, again until it finds no new one, so that they
// cannot multiply faster than they are ended.
func stopTree() {
	held := map[int]bool{}
	for range 100 {
		fresh := false
		for _, pid := range descendants(os.Getpid()) {
			if !held[pid] {
				held[pid], fresh = true, true
				syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !fresh {
			return
		}
	}
}

// endTree ends and reaps what the command left behind, and counts it. It is
// done when the kernel knows no child any more: orphans come to this process,
// so there is no descendant without a child. A listing of /proc would not do,
// it can miss a process that is born while it is read. It gives up after half a
// minute (a process in an uninterruptible wait).
func endTree(int) int {
	ended := map[int]bool{}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				return len(ended)
			}
			if err != nil && err != syscall.EINTR || err == nil && pid == 0 {
				break
			}
		}
		stopTree()
		for _, pid := range descendants(os.Getpid()) {
			ended[pid] = true
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return len(ended)
}

// descendants lists the living children of a process, their children, and so
// on. Processes that have ended and wait for their parent are left out, unless
// they have children.
func descendants(of int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		state, parent, ok := processStat(pid)
		if ok && state != "Z" && state != "X" {
			children[parent] = append(children[parent], pid)
		}
	}
	list := slices.Clone(children[of])
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

func processStat(pid int) (state string, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	_, rest, found := strings.Cut(string(data[max(0, strings.LastIndexByte(string(data), ')')):]), " ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// become gives up what a command must not have, and becomes the shell. It
// returns only if something failed, and then nothing has been run.
//
// All of it concerns the calling thread, and exec keeps that one alone.
func become(s spec, dir int, command string) error {
	runtime.LockOSThread()
	if err := unix.Fchdir(dir); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	unix.Umask(0o022)
	if err := limits(s); err != nil {
		return err
	}
	switch s.Sandbox {
	case SandboxNone:
	case SandboxLandlock:
		if s.Mounts {
			if err := mountReadOnly(s.Workspace); err != nil {
				return err
			}
			if err := enterMounted(s, dir); err != nil {
				return fmt.Errorf("enter the directory: %w", err)
			}
		}
		ruleset, err := landlockRules(s)
		if err != nil {
			return err
		}
		if s.UID != 0 {
			if err := changeUser(s); err != nil {
				return err
			}
		} else if err := dropAll(); err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); e != 0 {
			return fmt.Errorf("restrict files: %w", e)
		}
		if err := filterCalls(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is no sandbox %q", s.Sandbox)
	}
	err := unix.Exec("/bin/sh", []string{"sh", "-c", command}, s.Env)
	return fmt.Errorf("start /bin/sh: %w", err)
}

func limits(s spec) error {
	set := func(what string, resource int, n uint64) error {
		var old unix.Rlimit
		if err := unix.Getrlimit(resource, &old); err != nil {
			return fmt.Errorf("limit %s: %w", what, err)
		}
		n = min(n, old.Max)
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit %s: %w", what, err)
		}
		return nil
	}
	os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // out of memory: it goes first
	err := errors.Join(
		set("CPU time", unix.RLIMIT_CPU, uint64(s.CPUSeconds)),
		set("core files", unix.RLIMIT_CORE, 0),
	)
	if s.Sandbox == SandboxNone {
		return err
	}
	uid := os.Getuid()
	if s.UID != 0 {
		uid = s.UID
	}
	return errors.Join(err,
		set("file size", unix.RLIMIT_FSIZE, maxFileSize),
		set("memory", unix.RLIMIT_DATA, maxData),
		set("open files", unix.RLIMIT_NOFILE, maxOpenFiles),
		set("processes", unix.RLIMIT_NPROC, uint64(tasksOf(uid)+maxProcesses)),
	)
}

// tasksOf counts the threads of a user, as RLIMIT_NPROC does.
func tasksOf(uid int) int {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	n := 0
	for _, p := range procs {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			threads, _ := os.ReadDir(p + "/task")
			n += len(threads)
		}
	}
	return n
}

// changeUser gives up root. System calls of this thread alone on purpose.
func changeUser(s spec) error {
	call := func(what string, nr, a, b, c uintptr) error {
		if _, _, e := unix.RawSyscall(nr, a, b, c); e != 0 {
			return fmt.Errorf("%s: %w", what, e)
		}
		return nil
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if s.Override && c == unix.CAP_DAC_OVERRIDE {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if s.Override {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("keep capabilities: %w", err)
		}
	}
	uid, gid := uintptr(s.UID), uintptr(s.GID)
	err := call("drop groups", unix.SYS_SETGROUPS, 0, 0, 0)
	if err == nil {
		err = call("change group", unix.SYS_SETRESGID, gid, gid, gid)
	}
	if err == nil {
		err = call("change user", unix.SYS_SETRESUID, uid, uid, uid)
	}
	if err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if s.Override {
		const bit = 1 << unix.CAP_DAC_OVERRIDE
		caps[0] = unix.CapUserData{Effective: bit, Permitted: bit, Inheritable: bit}
	}
	if err := unix.Capset(&header, &caps[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	if s.Override {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_DAC_OVERRIDE, 0, 0); err != nil {
			return fmt.Errorf("keep the right to the workspace: %w", err)
		}
	}
	return nil
}

// dropAll gives up the capabilities that a user namespace brought.
func dropAll() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

func landlockABI() int {
	abi, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(abi)
}

// landlockRules makes the ruleset: everything is refused except reading and
// executing the system's directories and doing anything but making devices in
// the workspace. No TCP, no signals and abstract sockets to the outside, as far
// as the kernel knows them.
func landlockRules(s spec) (int, error) {
	abi := landlockABI()
	if abi < minLandlock {
		return 0, fmt.Errorf("version %d of Landlock is too old", abi)
	}
	const (
		file = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
		read = file | unix.LANDLOCK_ACCESS_FS_READ_DIR
		edit = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
		v3   = 1<<15 - 1 // all rights of version 3
		rest = v3 &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
	)
	handled := uint64(v3)
	if abi >= 5 {
		handled |= 1 << 15 // ioctl on devices
	}
	if abi >= 9 {
		handled |= 1 << 16 // connecting to a socket file
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	if abi >= 4 {
		attr.Handled_access_net = 1<<2 - 1 // bind and connect, TCP
	}
	if abi >= 6 {
		attr.Scoped = 1<<2 - 1 // abstract sockets and signals
	}
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return 0, fmt.Errorf("make Landlock rules: %w", e)
	}
	unix.CloseOnExec(int(fd))
	allow := func(path string, rights uint64) error {
		at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= file | edit
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)}
		if _, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
			return e
		}
		return nil
	}
	for _, p := range s.Read {
		if err := allow(p, read); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOTDIR) {
			return 0, fmt.Errorf("allow reading %s: %w", p, err)
		}
	}
	if err := allow("/dev/null", file|edit); err != nil {
		return 0, fmt.Errorf("allow /dev/null: %w", err)
	}
	if err := allow(s.Workspace, rest); err != nil {
		return 0, fmt.Errorf("allow the workspace: %w", err)
	}
	return int(fd), nil
}
