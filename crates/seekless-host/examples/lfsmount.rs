use seekless::fs::lfs;
use seekless_host::fuse::{Mount, MountOptions, TransportChoice};
use seekless_host::leaves::{FileDevice, FileOptions};
use seekless_host::reactor::{Reactor, ReactorOptions, Signals};
use std::rc::Rc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let image = words.next().unwrap();
    let directory = words.next().unwrap();
    let mut options = MountOptions::new(directory, "lfs");
    let mut make = false;
    for w in words {
        match w.as_str() {
            "mkfs" => make = true,
            "uring" => options.transport = TransportChoice::Uring,
            "devfuse" => options.transport = TransportChoice::DevFuse,
            _ => panic!(),
        }
    }
    options.allow_other = true;
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let reactor = Reactor::new(ReactorOptions::default())?;
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    executor.block_on(async {
        let device: seekless::device::Device =
            Rc::new(FileDevice::open(&rt, &reactor, std::path::Path::new(&image), FileOptions::default())?);
        if make {
            lfs::mkfs(&rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
        }
        let options_of_fs = lfs::Options { cache_data: false, ..lfs::Options::default() };
        let fs = lfs::mount(rt.clone(), device, options_of_fs).await?;
        let mount = Mount::start(&rt, &reactor, fs.clone(), options).await?;
        println!("mounted: {}, {}", mount.transport_name(), reactor.backend_name());
        mount
            .serve(async {
                signals.next(&reactor).await;
            })
            .await?;
        use seekless::fs::FileSystem;
        for (name, count) in fs.counters() {
            println!("{name} {count}");
        }
        Ok(())
    })?
}
