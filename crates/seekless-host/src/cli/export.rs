//! `seekless export`

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use seekless::stack::{Interface, Purpose, Stack};

use super::daemon::{Report, Side};
use super::pid_file::PidFile;
use super::world::World;
use super::{Done, FAILED, Failure, WRONG_USAGE, daemon, logging, output, panic, read_stack};
use crate::nbd::{ListenAddress, Server};
use crate::reactor::Signals;

/// Port of NBD, as IANA has it.
const PORT: u16 = 10809;

/// Offer a block device to NBD clients, over a Unix socket or TCP
///
/// Returns when clients can connect; a daemon serves them until it gets SIGTERM or SIGINT, and then makes everything
/// durable. Without --socket and --listen it listens on the loopback address alone: NBD has no passwords, so every
/// client that reaches the address can read and write.
///
/// What is durable: what a flush or a write with FUA has acknowledged, to any client.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless mkfs 'vld / file:disk.img,size=10GiB'
  seekless export 'vld / file:disk.img' --socket disk.sock
  nbdinfo 'nbd+unix:///?socket=disk.sock'
  nbd-client -unix disk.sock /dev/nbd0 && mkfs.ext4 /dev/nbd0

Exit codes: 0 it is offered (with --foreground: it was, and has ended well), 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// A stack of devices, for example 'vld / file:disk.img'; see `seekless list`
    stack: String,

    /// Listen on this Unix socket
    #[arg(short, long, value_name = "FILE")]
    socket: Option<PathBuf>,

    /// Listen on this address; port 0 is any that is free
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Refuse writes
    #[arg(short, long)]
    read_only: bool,

    /// Stay in the foreground; control-C ends it
    #[arg(short, long)]
    foreground: bool,

    /// Write the number of the daemon's process into this file while it serves; a file of a process that is gone is
    /// replaced
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    #[command(flatten)]
    logging: logging::LogOptions,
}

pub(super) fn run(args: &Args) -> Done {
    let stack = read_stack(&args.stack)?;
    if stack.is() != Interface::Device {
        let problem = format!("`{}` is a file system, and only block devices can be offered", stack.words()[0].name());
        let hint = "for example: seekless export 'vld / file:disk.img'; file systems are mounted";
        return Err(Failure::new(problem).hint(hint).code(WRONG_USAGE));
    }
    let addresses = addresses(args);
    logging::start(&args.logging)?;
    panic::ends_the_process();
    let pid_file = args.pid_file.as_deref().map(PidFile::new).transpose()?;
    let read_only = args.read_only || stack.says_read_only();
    let wish = Wish { stack, addresses, read_only, pid_file };
    if args.foreground {
        return serve(&wish, None);
    }
    match daemon::split()? {
        Side::Parent(waiting) => waiting.outcome(),
        Side::Child(report) => serve_in_background(&wish, report),
    }
}

/// Where to listen: by default on loopback.
fn addresses(args: &Args) -> Vec<ListenAddress> {
    let unix = args.socket.clone().map(ListenAddress::Unix);
    let tcp = args.listen.map(ListenAddress::Tcp);
    let told: Vec<ListenAddress> = unix.into_iter().chain(tcp).collect();
    match told.is_empty() {
        true => vec![ListenAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))],
        false => told,
    }
}

struct Wish {
    stack: Stack,
    addresses: Vec<ListenAddress>,
    read_only: bool,
    pid_file: Option<PidFile>,
}

/// The daemon: failures before it works go to the parent, later ones to the log.
fn serve_in_background(wish: &Wish, report: Report) -> Done {
    let mut report = Some(report);
    match serve(wish, Some(&mut report)) {
        Ok(code) => Ok(code),
        Err(failure) => {
            match report.take() {
                Some(report) => report.failed(&failure),
                None => log::error!("{}", failure.text),
            }
            Ok(failure.code)
        }
    }
}

fn serve(wish: &Wish, report: Option<&mut Option<Report>>) -> Done {
    // Before there are threads, which would otherwise take the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1])
        .map_err(|error| Failure::new(format!("cannot receive signals: {error}")).code(FAILED))?;
    if let Some(report) = report.as_ref().and_then(|report| report.as_ref()) {
        report.end_with_parent();
    }
    let world = World::new()?;
    let _watchdog = world.watchdog();
    let ended_by = Cell::new(None);
    let served = world.run(async {
        let leaves = world.leaves();
        let purpose = if wish.read_only { Purpose::Inspect } else { Purpose::Use };
        let opened = world.opened(&signals, &ended_by, wish.stack.open(&world.rt, &leaves, purpose)).await?;
        let Some(device) = opened.device().cloned() else { return Err(Failure::new("there is no device")) };
        if !wish.read_only && (device.geometry().zones.is_some() || device.spans().is_some()) {
            let problem =
                format!("{} must be written in order, in zones, but NBD clients write anywhere", device.describe());
            return Err(Failure::new(problem).hint("--read-only exports it for reading").code(WRONG_USAGE));
        }
        let server = Server::new(&world.rt, &world.reactor, device.clone(), wish.read_only, &wish.addresses)?;
        if let Some(pid_file) = &wish.pid_file {
            pid_file.write()?;
        }
        let arrays = opened.arrays();
        for warning in arrays.iter().filter_map(|array| array.redundancy()).flat_map(|array| array.status().warnings())
        {
            output::note(&format!("warning: {warning}"));
            log::warn!("{warning}");
        }
        for file in leaves.files().iter().filter(|file| file.left_over() > 0) {
            let (path, left_over) = (file.path().display(), file.left_over());
            let warning = format!("the last {left_over} bytes of {path} are no whole block, and are not offered");
            output::note(&format!("warning: {warning}"));
            log::warn!("{warning}");
        }
        let watch = super::arrays::watch(&world.rt, &arrays);
        drop(arrays);
        let addresses = server.addresses().join(" and ");
        log::info!("{} is offered at {addresses}", device.describe());
        match report {
            Some(report) => {
                output::note(&format!("offered at {addresses}"));
                if let Some(report) = report.take() {
                    report.ready();
                }
            }
            None => output::note(&format!("offered at {addresses}; control-C ends it")),
        }
        let stop = async {
            while signals.next(&world.reactor).await == libc::SIGUSR1 {
                for part in opened.parts() {
                    part.counters().into_iter().for_each(|(counter, count)| {
                        log::info!("{}: {counter} {count}", part.describe());
                    });
                }
            }
        };
        let ended = server.serve(stop).await;
        watch.look();
        ended?;
        log::info!("everything is durable");
        Ok(0)
    });
    if let Some(pid_file) = &wish.pid_file {
        pid_file.remove();
    }
    if let Some(signal) = ended_by.get() {
        signals.end_by(signal);
    }
    served
}
