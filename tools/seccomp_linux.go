package tools

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterCalls installs the system call filter of a confined command. Landlock
// knows neither UDP nor socket files on most kernels and no namespaces, so
// sockets cannot be made at all (pairs can), and the calls that give a process
// more of the kernel than a command needs are refused.
func filterCalls() error {
	var (
		load = func(offset uint32) unix.SockFilter {
			return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
		}
		ret = func(v uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v} }
		// equal skips the next instruction unless the loaded value is v.
		equal = func(v uint32) unix.SockFilter {
			return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: v, Jf: 1}
		}
	)
	const (
		offsetNr, offsetArch, offsetArg0 = 0, 4, 16 // struct seccomp_data, little endian
		refuse                           = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown                          = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		namespaces                       = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	)
	program := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: seccompArch, Jt: 1},
		ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNr),
	}
	if runtime.GOARCH == "amd64" { // the x32 calls have numbers of their own
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: 0x40000000, Jf: 1}, ret(unknown))
	}
	for _, nr := range refusedCalls() {
		program = append(program, equal(nr), ret(refuse))
	}
	// Unknown, so that programs fall back to calls that can be judged here:
	// clone3 has its flags in memory, io_uring opens sockets by itself.
	for _, nr := range []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		program = append(program, equal(nr), ret(unknown))
	}
	// Limits of its own only (process 0): nothing else keeps a command from taking
	// clawbot's processor time or files, which run as the same user.
	program = append(program,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRLIMIT64, Jf: 4},
		load(offsetArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 1},
		ret(refuse),
		ret(unix.SECCOMP_RET_ALLOW),
	)
	program = append(program,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		load(offsetArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: namespaces, Jf: 1},
		ret(refuse),
		ret(unix.SECCOMP_RET_ALLOW),
	)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0, 0)
	runtime.KeepAlive(program)
	if e != 0 {
		return fmt.Errorf("filter system calls: %w", e)
	}
	return nil
}

func refusedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_SOCKET,
		// other processes
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		// mounts and namespaces
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
		// kernel
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
	}, refusedOnArch()...)
}
