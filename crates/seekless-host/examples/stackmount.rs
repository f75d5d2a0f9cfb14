//! Mounts a stack in the foreground, to try it: what the program's `mount` does, without its comforts.
//!
//! ```text
//! cargo run --release --example stackmount -- 'wrap / hostdir:/srv/data' /mnt [allow_other] [transport=devfuse|uring]
//! ```

use seekless::stack::{Identity, Stack, Usage};
use seekless_host::fuse::{Mount, MountOptions, TransportChoice};
use seekless_host::leaves::HostLeaves;
use seekless_host::reactor::{Reactor, ReactorOptions, Signals};

fn main() {
    if let Err(error) = run() {
        eprintln!("stackmount: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(line), Some(mount_point)) = (words.next(), words.next()) else {
        return Err("usage: stackmount STACK DIR [allow_other] [transport=devfuse|uring]".into());
    };
    let stack = Stack::parse(&line)?;
    let mut options = MountOptions::new(mount_point, &line);
    for word in words {
        match word.as_str() {
            "allow_other" => options.allow_other = true,
            "transport=devfuse" => options.transport = TransportChoice::DevFuse,
            "transport=uring" => options.transport = TransportChoice::Uring,
            other => return Err(format!("unknown word: {other}").into()),
        }
    }
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let reactor = Reactor::new(ReactorOptions::default())?;
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    executor.block_on(async {
        let leaves = HostLeaves::new(&reactor);
        let usage = Usage { read_only: false, data_cached_above: true };
        let mounted = stack.mount(&rt, &leaves, &Identity::new([1, 2, 3, 4]), usage).await?;
        if !mounted.fs.traits().exclusive {
            // What is reached another way as well is kept by somebody else, who writes it back by himself.
            options.commit_interval = None;
        }
        let mount = Mount::start(&rt, &reactor, mounted.fs.clone(), options).await?;
        println!("mounted: {}, {}", mount.transport_name(), reactor.backend_name());
        mount
            .serve(async {
                signals.next(&reactor).await;
            })
            .await?;
        for part in &mounted.parts {
            println!("{}: {:?}", part.describe(), part.counters());
        }
        Ok(())
    })?
}
