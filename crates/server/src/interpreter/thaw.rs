//! Goes on from a file that frozen.py has written: `thaw FILE PROGRAM ARGUMENTS` becomes the process
//! that is kept there, with these arguments, or executes the program where it cannot: the file is
//! of another kernel, a file that was mapped has changed since, or its place in memory is taken.
//! `thaw -` writes the code by which a process keeps itself.
//!
//! A program without a library, and without relocations: it must not touch memory that the other
//! process will have. It runs in sandboxes, with the rights of their programs.
#![no_std]
#![no_main]
#![no_builtins]

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use core::slice;

// freeze(ranges, count, file, frame): writes the pages that are not all zero, and returns 0, or 2
// if they cannot be written. A range is its start, end, and place in the file; the frame gets the
// stack pointer, with the registers above it that a function keeps, and the place at which `go_on`
// jumps back into the function, which returns 1 then.
global_asm!(
    "freeze:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "mov [rcx], rsp",
    "lea rax, [rip + 3f]",
    "mov [rcx + 8], rax",
    "mov r12, rdi",
    "lea r13, [rsi + rsi * 2]",
    "lea r13, [rdi + r13 * 8]",
    "mov r14, rdx",
    "4: xor eax, eax",
    "cmp r12, r13",
    "jae 9f",
    "mov rbx, [r12]",
    "mov r15, [r12 + 8]",
    "mov rbp, [r12 + 16]",
    "add r12, 24",
    "5: cmp rbx, r15",
    "jae 4b",
    "mov rdi, rbx",
    "mov ecx, 512",
    "xor eax, eax",
    "repe scasq",
    "je 6f",
    "mov edi, r14d",
    "mov rsi, rbx",
    "mov edx, 4096",
    "mov r10, rbp",
    "mov eax, 18", // pwrite64
    "syscall",
    "cmp rax, 4096",
    "mov eax, 2",
    "jne 9f",
    "6: add rbx, 4096",
    "add rbp, 4096",
    "jmp 5b",
    "3: mov eax, 1",
    "9: pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
    "freeze_end:",
    ".globl _start",
    "_start: xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

/// The numbers of system calls (syscall(2), x86-64).
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const STAT: usize = 4;
    pub const MMAP: usize = 9;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const EXECVE: usize = 59;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const SET_TID_ADDRESS: usize = 218;
    pub const EXIT_GROUP: usize = 231;
    pub const SET_ROBUST_LIST: usize = 273;
    pub const RSEQ: usize = 334;
}

const ENOENT: isize = -2;
const O_CLOEXEC: usize = 0o2_000_000;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_WIPEONFORK: usize = 18;
const MREMAP_MAYMOVE_FIXED: usize = 3;
const ARCH_SET_FS: usize = 0x1002;
const RSEQ_SIGNATURE: usize = 0x5305_3053;
const ROBUST_BYTES: usize = 24;

const MAGIC: u64 = 0x3177_6168_746c_7461;
/// The length of a file that was not there.
const ABSENT: u64 = u64::MAX;
/// The status where the one process is gone and the other is not there yet.
const HALF_WAY: usize = 125;

/// The beginning of the file; the entries follow, the files that must look as they did, and texts.
#[repr(C)]
struct Head {
    magic: u64,
    bytes: u64,
    entries: u64,
    files: u64,
    stack: u64,
    place: u64,
    fs: u64,
    tid: u64,
    robust: u64,
    rseq: u64,
    rseq_bytes: u64,
}

/// A mapping; its name is a place in the head.
#[repr(C)]
struct Entry {
    start: u64,
    end: u64,
    offset: u64,
    kind: u32,
    protection: u32,
    name: u64,
}

const OF_IMAGE: u32 = 0;
const OF_FILE: u32 = 1;
const EMPTY: u32 = 2;
const SHARED: u32 = 3;
const MOVED: u32 = 4;
/// Empty, and empty again in a child.
const WIPED: u32 = 5;

#[repr(C)]
struct File {
    name: u64,
    size: u64,
    seconds: u64,
    nanoseconds: u64,
}

/// A mapping of this process; its name is empty unless the kernel has named it, as `[vdso]`.
struct Own {
    start: u64,
    end: u64,
    name: &'static [u8],
}

const OWN_MAX: usize = 32;
const TEXT_BYTES: usize = 8192;
static mut OWN: [MaybeUninit<Own>; OWN_MAX] = [const { MaybeUninit::uninit() }; OWN_MAX];
static mut TEXT: [u8; TEXT_BYTES] = [0; TEXT_BYTES];

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(HALF_WAY)
}

fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: whoever calls this knows what the call does to memory.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    result
}

fn exit(status: usize) -> ! {
    loop {
        call(number::EXIT_GROUP, [status, 0, 0, 0, 0, 0]);
    }
}

/// A text with a zero at its end.
#[derive(Clone, Copy)]
struct Text(*const u8);

impl Text {
    fn is(self, other: &[u8]) -> bool {
        // SAFETY: there is a zero at its end, and no byte after one that differs is read.
        let byte = |at: usize| unsafe { *self.0.add(at) };
        let mut all = other.iter().enumerate();
        all.all(|(at, other)| *other != 0 && byte(at) == *other) && byte(other.len()) == 0
    }
}

fn open(path: Text) -> Option<usize> {
    let got = call(number::OPEN, [path.0.addr(), O_CLOEXEC, 0, 0, 0, 0]);
    usize::try_from(got).ok()
}

fn close(file: usize) {
    call(number::CLOSE, [file, 0, 0, 0, 0, 0]);
}

/// The file, as far as it says what is in it.
struct Image {
    file: usize,
    base: *const u8,
    head: &'static Head,
}

impl Image {
    fn open(path: Text) -> Option<Self> {
        let file = open(path)?;
        let map = |bytes: usize| {
            let got = call(number::MMAP, [0, bytes, 1, MAP_PRIVATE, file, 0]);
            usize::try_from(got).ok().map(|at| at as *const u8)
        };
        // SAFETY: frozen.py has written a head, which is longer than a page.
        let head = unsafe { &*map(4096)?.cast::<Head>() };
        if head.magic != MAGIC {
            return None;
        }
        let base = map(head.bytes as usize)?;
        Some(Self { file, base, head })
    }

    fn entries(&self) -> &'static [Entry] {
        // SAFETY: frozen.py has written as many after the head.
        unsafe {
            let at = self.base.add(size_of::<Head>()).cast();
            slice::from_raw_parts(at, self.head.entries as usize)
        }
    }

    fn files(&self) -> &'static [File] {
        let entries = self.entries();
        // SAFETY: frozen.py has written as many after the entries.
        unsafe {
            let at = entries.as_ptr_range().end.cast();
            slice::from_raw_parts(at, self.head.files as usize)
        }
    }

    fn text(&self, at: u64) -> Text {
        // SAFETY: frozen.py has written a text there.
        Text(unsafe { self.base.add(at as usize) })
    }

    fn is_current(&self) -> bool {
        self.files().iter().all(|file| {
            let mut facts = MaybeUninit::<[u64; 18]>::uninit();
            let path = self.text(file.name).0.addr();
            let to = facts.as_mut_ptr().addr();
            match call(number::STAT, [path, to, 0, 0, 0, 0]) {
                0 => {
                    // SAFETY: the kernel has written it: its length and its time are at these places
                    // (struct stat, x86-64).
                    let facts = unsafe { facts.assume_init_ref() };
                    (facts[6], facts[11], facts[12]) == (file.size, file.seconds, file.nanoseconds)
                }
                ENOENT => file.size == ABSENT,
                _ => false,
            }
        })
    }

    fn fits(&self, own: &[Own]) -> bool {
        self.entries().iter().all(|entry| {
            let is_free = own
                .iter()
                .all(|one| one.end <= entry.start || entry.end <= one.start);
            is_free && (entry.kind != MOVED || self.moved(entry, own).is_some())
        })
    }

    /// Finds what the kernel has mapped for every process: it is the same, at another place.
    fn moved<'o>(&self, entry: &Entry, own: &'o [Own]) -> Option<&'o Own> {
        let name = self.text(entry.name);
        own.iter()
            .find(|one| name.is(one.name) && one.end - one.start == entry.end - entry.start)
    }

    fn map(&self, entry: &Entry, file: usize, own: &[Own]) -> bool {
        let at = entry.start as usize;
        let bytes = (entry.end - entry.start) as usize;
        let (flags, file) = match entry.kind {
            OF_IMAGE => (MAP_PRIVATE, self.file),
            OF_FILE => (MAP_PRIVATE, file),
            SHARED => (MAP_SHARED, file),
            EMPTY | WIPED => (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, usize::MAX),
            _ => {
                let from = self.moved(entry, own).map_or(0, |one| one.start as usize);
                let words = [from, bytes, bytes, MREMAP_MAYMOVE_FIXED, at, 0];
                return call(number::MREMAP, words) == at as isize;
            }
        };
        let protection = entry.protection as usize;
        let words = [at, bytes, protection, flags | MAP_FIXED, file, entry.offset as usize];
        let is_there = call(number::MMAP, words) == at as isize;
        match entry.kind {
            WIPED => {
                let words = [at, bytes, MADV_WIPEONFORK, 0, 0, 0];
                is_there && call(number::MADVISE, words) == 0
            }
            _ => is_there,
        }
    }

    fn map_all(&self, own: &[Own]) {
        let (mut name, mut file) = (0, usize::MAX);
        for entry in self.entries() {
            if matches!(entry.kind, OF_FILE | SHARED) && entry.name != name {
                close(file);
                name = entry.name;
                file = open(self.text(name)).unwrap_or_else(|| exit(HALF_WAY));
            }
            if !self.map(entry, file, own) {
                exit(HALF_WAY);
            }
        }
        close(file);
        close(self.file);
    }

    /// Gives the kernel what it keeps of a thread, and jumps.
    fn go_on(&self) -> ! {
        let head = self.head;
        let words = [ARCH_SET_FS, head.fs as usize, 0, 0, 0, 0];
        call(number::ARCH_PRCTL, words);
        let tid = head.tid as usize;
        call(number::SET_TID_ADDRESS, [tid, 0, 0, 0, 0, 0]);
        // SAFETY: the C library keeps the thread's number there (set_tid_address(2)).
        unsafe { *(tid as *mut u32) = call(number::GETTID, [0; 6]) as u32 };
        let robust = head.robust as usize;
        call(number::SET_ROBUST_LIST, [robust, ROBUST_BYTES, 0, 0, 0, 0]);
        if head.rseq != 0 {
            let (at, bytes) = (head.rseq as usize, head.rseq_bytes as usize);
            call(number::RSEQ, [at, bytes, 0, RSEQ_SIGNATURE, 0, 0]);
        }
        // SAFETY: the memory is that of the process which has called `freeze` with this stack.
        unsafe {
            asm!("mov rsp, {stack}", "jmp {place}", stack = in(reg) head.stack,
                place = in(reg) head.place, options(noreturn));
        }
    }
}

/// Reads the mappings of this process (proc_pid_maps(5)); none if there are too many.
fn read_own() -> Option<&'static [Own]> {
    let file = open(Text(c"/proc/self/maps".as_ptr().cast()))?;
    let mut bytes = 0;
    let at = (&raw mut TEXT).cast::<u8>();
    loop {
        let to = at.addr() + bytes;
        let got = call(number::READ, [file, to, TEXT_BYTES - bytes, 0, 0, 0]);
        match usize::try_from(got).ok()? {
            0 => break,
            got => bytes += got,
        }
    }
    close(file);
    // SAFETY: there is one thread, and the kernel has written as many bytes.
    let (text, own) = unsafe { (slice::from_raw_parts(at, bytes), &mut *(&raw mut OWN)) };
    let mut count = 0;
    for line in text.split(|byte| *byte == b'\n') {
        if !line.is_empty() {
            own.get_mut(count)?.write(read_line(line));
            count += 1;
        }
    }
    // SAFETY: as many have been written.
    Some(unsafe { slice::from_raw_parts((&raw const OWN).cast(), count) })
}

fn read_line(line: &'static [u8]) -> Own {
    let mut numbers = [0; 2];
    let mut at = 0;
    for byte in line {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'-' if at == 0 => {
                at = 1;
                continue;
            }
            _ => break,
        };
        numbers[at] = numbers[at] << 4 | u64::from(digit);
    }
    let name = line.iter().position(|byte| *byte == b'[');
    Own {
        start: numbers[0],
        end: numbers[1],
        name: name.and_then(|at| line.get(at..)).unwrap_or_default(),
    }
}

fn thaw(path: Text) -> Option<()> {
    let image = Image::open(path)?;
    let own = read_own()?;
    if !image.is_current() || !image.fits(own) {
        return None;
    }
    image.map_all(own);
    image.go_on()
}

/// Begins; the arguments and variables lie on the stack, as the kernel has put them (execve(2)).
unsafe extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: see above: a count, the arguments, a zero, the variables, a zero.
    let (arguments, variables) = unsafe {
        let arguments = slice::from_raw_parts(stack.add(1), *stack);
        (arguments, stack.add(1 + *stack + 1).addr())
    };
    let [_, first, rest @ ..] = arguments else {
        exit(2)
    };
    let path = Text(*first as *const u8);
    if path.is(b"-") {
        let (from, to): (usize, usize);
        // SAFETY: this reads no memory.
        unsafe {
            asm!("lea {}, [rip + freeze]", "lea {}, [rip + freeze_end]", out(reg) from, out(reg) to);
        }
        call(number::WRITE, [1, from, to - from, 0, 0, 0]);
        exit(0)
    }
    let _ = thaw(path);
    if let [program, ..] = rest {
        call(number::EXECVE, [*program, rest.as_ptr().addr(), variables, 0, 0, 0]);
    }
    exit(127)
}
