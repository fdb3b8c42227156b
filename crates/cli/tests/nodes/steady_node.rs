//! A node that counts the costs of its data path: allocations, and system calls other than those of futexes.
//!
//! `pulse` sends a sample at each tick, once the answer to the one before is there; `echo` answers. How many samples
//! it holds at a time depends on when they arrive, so it holds more in the first rounds than ever later: what happens
//! after these happens in all. The node runs on a thread of its own, since a thread cannot leave the filter of system
//! calls again; the control thread is not counted.
#![expect(
    unsafe_code,
    reason = "a global allocator, a signal handler and a filter of system calls have no safe interface"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::mem::{ManuallyDrop, offset_of, zeroed};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::{io, ptr, thread};

use nervure_node::message::Metadata;
use nervure_node::{Envelope, Event, Node, Publisher, Sample};
use syscalls::Sysno;

/// Rounds in which the pools grow and the caches fill.
const WARM_UP: u64 = 100;
/// The samples that `echo` holds at a time in the first rounds. Later it holds three at most: the numbers, the newest
/// text, and the one before.
const HELD: usize = 6;
/// More than a second of the pulse, in which each once-a-second task of the node has its turn.
const ROUNDS: u64 = 700;
/// More than fits into a slot of the ring.
const NUMBERS: usize = 1024;

/// Less than the allocator gives back to the kernel at once, which is 128 KB.
const ROOM_FOR_BACKTRACE_BYTES: usize = 100_000;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Allocations of a node's data path since [`begin`].
struct Counted {
    allocations: u64,
    first: Option<Backtrace>,
}

fn main() -> ExitCode {
    let (report, counted) = channel();
    thread::spawn(move || {
        if let Err(error) = run(&report) {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
        // The filter allows nothing else.
        loop {
            thread::park();
        }
    });
    let Ok(Counted { allocations, first }) = counted.recv() else {
        return ExitCode::FAILURE;
    };
    println!("{allocations} calls of the allocator in {ROUNDS} rounds");
    match first {
        None => ExitCode::SUCCESS,
        Some(first) => {
            println!("the first:\n{first}");
            ExitCode::FAILURE
        }
    }
}

fn run(report: &Sender<Counted>) -> Outcome<()> {
    // Not dropped: a drop sends a message to the keeper, which the filter does not allow.
    let mut node = ManuallyDrop::new(Node::connect()?);
    let disturbance = node.param("disturbance").ok();
    let disturb = match disturbance.as_ref().and_then(|name| name.as_str()) {
        Some("allocation") => || drop(std::hint::black_box(Box::new(0))),
        Some("call") => || {
            std::hint::black_box(rustix::process::getppid());
        },
        _ => || (),
    };
    match std::env::args().nth(1).as_deref() {
        Some("pulse") => pulse(&mut node, report, disturb),
        Some("echo") => echo(&mut node, report, disturb),
        other => Err(format!("what is a {other:?}?").into()),
    }
}

fn pulse(node: &mut Node, report: &Sender<Counted>, disturb: fn()) -> Outcome<()> {
    let (numbers, text) = (node.output("numbers")?, node.output("text")?);
    let mut metadata = Metadata::new();
    metadata.insert("side", "left");
    let (mut sent, mut answered) = (0, 0);
    while let Some(event) = node.next() {
        match event {
            Event::Tick { due, .. } if sent == answered => {
                disturb();
                let mut loan = numbers.loan::<f32>(&[NUMBERS])?;
                loan[0] = sent as f32;
                let envelope = Envelope::new().stamp(due).metadata(&metadata);
                loan.send_with(&envelope.frame("arm"))?;
                text.send("small enough for its slot")?;
                sent += 1;
            }
            Event::Input { sample, .. } if sample.as_slice::<f32>().is_ok() => {
                if sample.as_slice::<f32>()?[0] != answered as f32 {
                    return Err("another answer".into());
                }
                answered += 1;
                if is_over(answered, report)? {
                    return Ok(());
                }
            }
            Event::Stop { reason } => return Err(reason.into()),
            _ => {}
        }
    }
    Err("it has ended early".into())
}

fn echo(node: &mut Node, report: &Sender<Counted>, disturb: fn()) -> Outcome<()> {
    let out = node.output("out")?;
    let mut answered = 0;
    let mut held = Vec::with_capacity(HELD);
    while let Some(event) = node.next() {
        match event {
            Event::Input { id, sample } if &*id == "numbers" => {
                disturb();
                answer(node, &out, &sample)?;
                match answered < HELD as u64 {
                    true => held.push(sample),
                    false => held.clear(),
                }
                answered += 1;
                if is_over(answered, report)? {
                    return Ok(());
                }
            }
            Event::Stop { reason } => return Err(reason.into()),
            _ => {}
        }
    }
    Err("it has ended early".into())
}

/// Counts from the end of the warm-up on. Returns whether this round was the last, and reports then.
fn is_over(rounds: u64, report: &Sender<Counted>) -> Outcome<bool> {
    if rounds == WARM_UP {
        begin()?;
    }
    let is_last = rounds == WARM_UP + ROUNDS;
    if is_last {
        end(report)?;
    }
    Ok(is_last)
}

/// Does the reads of a controller, and sends the sample back.
fn answer(node: &mut Node, out: &Publisher, sample: &Sample) -> Outcome<()> {
    if sample.age(node.now()) < sample.latency() {
        return Err("a stamp of the future".into());
    }
    if let Some(text) = node.latest("text")? {
        std::str::from_utf8(text.bytes())?;
    }
    let numbers = sample.as_slice::<f32>()?;
    let mut loan = out.loan::<f32>(&[numbers.len()])?;
    loan.copy_from_slice(numbers);
    loan.send_with(&Envelope::new().like(sample))?;
    Ok(())
}

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static FIRST: RefCell<Option<Backtrace>> = const { RefCell::new(None) };
}

/// Begins to count on this thread. A system call that is not allowed ends the process.
fn begin() -> io::Result<()> {
    // So that the backtrace of an allocation makes no system call: the first one allocates what later ones share, and
    // the allocator then has room for the second.
    drop(Backtrace::force_capture());
    drop(std::hint::black_box(vec![1_u8; ROOM_FOR_BACKTRACE_BYTES]));
    filter_system_calls()?;
    ALLOCATIONS.set(0);
    COUNTS.set(true);
    Ok(())
}

fn end(report: &Sender<Counted>) -> Outcome<()> {
    COUNTS.set(false);
    let allocations = ALLOCATIONS.get();
    let first = FIRST.take();
    Ok(report.send(Counted { allocations, first })?)
}

/// The system's allocator, which counts its calls on the threads that ask for it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    if COUNTS.get() {
        COUNTS.set(false);
        if ALLOCATIONS.replace(ALLOCATIONS.get() + 1) == 0 {
            FIRST.set(Some(Backtrace::force_capture()));
        }
        COUNTS.set(true);
    }
}

// SAFETY: it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

/// Allows futexes, and `write` and `exit_group` for a report at the end. Any other call of this thread raises SIGSYS.
fn filter_system_calls() -> io::Result<()> {
    const ALLOWED: [Sysno; 3] = [Sysno::futex, Sysno::write, Sysno::exit_group];
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let instruction = |code: u32, jt, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let number = offset_of!(libc::seccomp_data, nr) as u32;
    let mut program = vec![instruction(LOAD, 0, number)];
    for (index, call) in ALLOWED.into_iter().enumerate() {
        // Over the rest of the list and the return for other calls.
        let over = (ALLOWED.len() - index) as u8;
        program.push(instruction(JUMP_IF_EQUAL, over, call as u32));
    }
    program.push(instruction(RETURN, 0, libc::SECCOMP_RET_TRAP));
    program.push(instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: all zeros is a valid value of this plain struct: no flags, no blocked signals.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_flags = libc::SA_SIGINFO;
    action.sa_sigaction = report_call as *const () as usize;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the handler has the type that SA_SIGINFO asks for, and calls only functions that a handler may call; the
    // kernel copies the program.
    let results = unsafe {
        [
            libc::sigaction(libc::SIGSYS, &action, ptr::null_mut()).into(),
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &filter),
        ]
    };
    match results {
        [0, 0] => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Names the system call that was not allowed, and ends the process.
extern "C" fn report_call(_: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    /// As the kernel has it behind its three numbers, on 64 bits: `_sigsys` of siginfo_t.
    #[repr(C)]
    struct Refused {
        head: [i32; 4],
        address: *const libc::c_void,
        number: i32,
    }
    // SAFETY: the signal is SIGSYS, so the kernel has filled in these.
    let number = unsafe { (*info.cast::<Refused>()).number };
    let name = Sysno::new(number as usize).map_or("unknown", |call| call.name());
    for text in ["the data path made the system call ", name, "\n"] {
        // SAFETY: the text is valid.
        unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: it ends the process.
    unsafe { libc::_exit(1) }
}
