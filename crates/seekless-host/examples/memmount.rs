//! Mounts a file system in memory, to try mounts and transports: everything is gone after unmounting.
//!
//! ```text
//! cargo run --release --example memmount -- DIR [transport=auto|devfuse|uring] [backend=auto|uring|pool]
//!     [handles] [writeback] [messages] [allow_other]
//! ```
//!
//! `handles` serves opens with messages and handles; `messages` asks for messages although they would not be
//! needed; `writeback` lets the kernel collect small writes.

use seekless::fs::OpenProtocol;
use seekless::testing::{MemFs, MemFsOptions};
use seekless_host::fuse::{Mount, MountOptions, TransportChoice};
use seekless_host::reactor::{Backend, Reactor, ReactorOptions, Signals};

fn main() {
    let mut words = std::env::args().skip(1);
    let Some(directory) = words.next() else {
        eprintln!("usage: memmount DIR [transport=T] [backend=B] [handles] [writeback] [messages] [allow_other]");
        std::process::exit(2);
    };
    let mut options = MountOptions::new(directory, "memory");
    let mut reactor_options = ReactorOptions::default();
    let mut memory = MemFsOptions { capacity_bytes: 8 << 30, ..MemFsOptions::default() };
    for word in words {
        match word.as_str() {
            "transport=auto" => options.transport = TransportChoice::Auto,
            "transport=devfuse" => options.transport = TransportChoice::DevFuse,
            "transport=uring" => options.transport = TransportChoice::Uring,
            "backend=auto" => reactor_options.backend = Backend::Auto,
            "backend=uring" => reactor_options.backend = Backend::Uring,
            "backend=pool" => reactor_options.backend = Backend::Pool,
            "handles" => memory.open_protocol = OpenProtocol::Handles,
            "writeback" => options.writeback_cache = true,
            "messages" => options.zero_message_open = false,
            "allow_other" => options.allow_other = true,
            other => {
                eprintln!("unknown word: {other}");
                std::process::exit(2);
            }
        }
    }
    if let Err(error) = run(options, reactor_options, memory) {
        eprintln!("memmount: {error}");
        std::process::exit(1);
    }
}

fn run(
    options: MountOptions,
    reactor_options: ReactorOptions,
    memory: MemFsOptions,
) -> Result<(), Box<dyn std::error::Error>> {
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let reactor = Reactor::new(reactor_options)?;
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    executor.block_on(async {
        let mount = Mount::start(&rt, &reactor, MemFs::with_options(&rt, memory), options).await?;
        println!("mounted: {}, {}", mount.transport_name(), reactor.backend_name());
        mount
            .serve(async {
                signals.next(&reactor).await;
            })
            .await?;
        for (name, count) in reactor.counters() {
            println!("{name} {count}");
        }
        Ok(())
    })?
}
