//! Small programs with a history: each has lost data on some file system.
//!
//! Every script tolerates having run before, in whole or in part: existing or missing targets do no harm, and running
//! it to its end gives the same tree. So a script can be cut at any write, recovered, and run again with a known
//! result.

use super::ops::{Op, parse};

/// A named script. `setup` is made durable before the first cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Script {
    pub name: &'static str,
    pub setup: &'static str,
    pub body: &'static str,
}

impl Script {
    /// The operations before the first cut, with a final `sync`.
    pub fn setup_ops(&self) -> Vec<Op> {
        let mut ops = parse(self.setup).unwrap_or_else(|error| panic!("script {}: {error}", self.name));
        ops.push(Op::Sync);
        ops
    }

    pub fn body_ops(&self) -> Vec<Op> {
        parse(self.body).unwrap_or_else(|error| panic!("script {}: {error}", self.name))
    }
}

pub const SCRIPTS: &[Script] = &[
    Script { name: "create and sync", setup: "", body: "create /f 644; write /f 0+100 #1; fsync /f; fsyncdir /" },
    Script {
        name: "replace by rename, synced",
        setup: "create /config 644; write /config 0+6000 #1",
        body: "create /config.new 600; truncate /config.new 0; write /config.new 0+7000 #2; fsync /config.new; \
               rename /config.new /config; fsyncdir /",
    },
    Script {
        name: "replace by rename, not synced",
        setup: "create /config 644; write /config 0+6000 #1",
        body: "create /config.new 600; truncate /config.new 0; write /config.new 0+7000 #2; rename /config.new /config; sync",
    },
    Script {
        name: "move between directories",
        setup: "mkdir /a 755; mkdir /b 755; create /a/f 644; write /a/f 0+100 #1",
        body: "rename /a/f /b/f; fsyncdir /b; fsyncdir /a",
    },
    Script {
        name: "move a directory",
        setup: "mkdir /a 755; mkdir /b 755; mkdir /a/d 755; create /a/d/f 644; write /a/d/f 0+5000 #1",
        body: "rename /a/d /b/d; fsyncdir /b; create /b/d/g 644; fsync /b/d/g; fsyncdir /b/d",
    },
    Script {
        name: "replace an empty directory",
        setup: "mkdir /a 755; create /a/f 644; mkdir /b 755",
        body: "rename /a /b; fsyncdir /",
    },
    Script {
        name: "link, then unlink the old name",
        setup: "create /old 644; write /old 0+3000 #1",
        body: "link /old /new; fsyncdir /; unlink /old; fsyncdir /",
    },
    Script {
        name: "append to a log",
        setup: "create /log 644",
        body: "truncate /log 0; append /log 300 #1; fdatasync /log; append /log 300 #2; fdatasync /log; \
               append /log 5000 #3; fdatasync /log; append /log 10 #4; fsync /log",
    },
    Script {
        name: "overwrite in place",
        setup: "create /db 644; write /db 0+40000 #1; fsync /db",
        body: "write /db 8192+4096 #2; fdatasync /db; write /db 100+20 #3; write /db 30000+20000 #4; fsync /db",
    },
    Script {
        name: "shrink and grow",
        setup: "create /f 644; write /f 0+20000 #1",
        body: "truncate /f 5000; fsync /f; truncate /f 15000; fsync /f; write /f 14000+3000 #2; fsync /f",
    },
    Script {
        name: "punch and fill",
        setup: "create /f 644; write /f 0+40000 #1",
        body: "punch /f 4096+16384; fsync /f; write /f 8192+100 #2; fsync /f; zero /f 0+3000; fsync /f",
    },
    Script {
        name: "attributes",
        setup: "create /f 644; mkdir /d 755",
        body: "chmod /f 4750; setxattr /f user.a 50 #1; fsync /f; setxattr /f user.b 3000 #2; chown /f 1:2; fsync /f; \
               removexattr /f user.a; chmod /d 2775; setxattr /d user.d 5 #3; fsyncdir /d; sync",
    },
    Script {
        name: "access-control lists",
        setup: "create /f 640; mkdir /d 755",
        body: "setacl /f u::rw-,u:7:rwx,g::r--,m::rwx,o::---; fsync /f; chmod /f 604; fsync /f; \
               setacl-default /d u::rwx,u:7:r-x,g::---,m::r-x,o::---; fsyncdir /d; create /d/g 666; mkdir /d/e 777; \
               fsyncdir /d; removexattr /d system.posix_acl_default; setacl /f u::rw-,g::r--,o::r--; create /d/h 666; sync",
    },
    Script {
        name: "write to an unlinked file",
        setup: "create /keep 644",
        body: "create /tmp 600; open @0 /tmp; write @0 0+9000 #1; unlink /tmp; fsyncdir /; write @0 9000+9000 #2; \
               fsync @0; write /keep 0+100 #3; fsync /keep; close @0; sync",
    },
    Script {
        name: "many small files",
        setup: "mkdir /m 755",
        body: "create /m/1 644; create /m/2 644; create /m/3 644; create /m/4 644; create /m/5 644; create /m/6 644; \
               write /m/1 0+1000 #1; write /m/2 0+1000 #2; write /m/3 0+1000 #3; write /m/4 0+1000 #4; sync; \
               unlink /m/1; unlink /m/3; unlink /m/5; fsyncdir /m; write /m/6 0+9000 #6; fsync /m/6",
    },
    Script {
        name: "one name, many files",
        setup: "",
        body: "create /f 644; write /f 0+100 #1; fsync /f; fsyncdir /; unlink /f; create /f 600; write /f 0+200 #2; \
               unlink /f; create /f 640; write /f 0+300 #3; fsync /f; fsyncdir /; mkdir /g 755; rmdir /g; create /h 644; sync",
    },
    Script {
        name: "a large file",
        setup: "",
        body: "create /big 644; write /big 0+600000 #1; fsync /big; fsyncdir /; write /big 300000+400000 #2; sync",
    },
    Script {
        name: "a tree comes and goes",
        setup: "",
        body: "mkdir /t 755; mkdir /t/u 755; mkdir /t/u/v 755; create /t/u/v/f 644; write /t/u/v/f 0+10 #1; sync; \
               unlink /t/u/v/f; rmdir /t/u/v; rmdir /t/u; rmdir /t; sync",
    },
    Script {
        name: "move and leave a whiteout",
        setup: "mkdir /a 755; mkdir /b 755",
        body: "unlink /a/f; unlink /b/f; create /a/f 644; write /a/f 0+5000 #1; mkdir /a/d 755; sync; rename-whiteout /a/f /b/f; \
               fsyncdir /b; fsyncdir /a; rename-whiteout-noreplace /a/d /b/d; fsyncdir /a; sync",
    },
    Script {
        name: "replace an empty directory and leave a whiteout",
        setup: "mkdir /o 755; mkdir /n 755",
        body: "unlink /o/d; mkdir /o/d 755; create /o/d/f 644; write /o/d/f 0+5000 #1; unlink /n/d/f; mkdir /n/d 755; unlink /x; \
               mkdir /x 755; mkdir /y 755; sync; rename-whiteout /o/d /n/d; fsyncdir /n; fsyncdir /o; rename-whiteout /x /y; fsyncdir /",
    },
    Script {
        name: "link a file that had no name",
        setup: "create /keep 644",
        body: "unlink /t; fsyncdir /; tmpfile @0 / 600; write @0 0+9000 #1; fsync @0; tmpfile @1 / 600; write @1 0+70000 #2; fsync @1; \
               link @0 /t; fsyncdir /; write @0 9000+9000 #3; fsync @0; close @1; write /keep 0+100 #4; fsync /keep; sync",
    },
    Script {
        name: "special files and symbolic links",
        setup: "",
        body: "mknod /pipe fifo 644; mknod /tty char:1025 620; symlink /s /target/of/a/link; fsyncdir /; \
               rename /s /pipe; unlink /tty; fsyncdir /",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{Executor, HostProfile};
    use crate::testing::{MemFs, Runner, Tree};

    /// Aim: scripts tolerate having run before. Method: on the model, cut each after every operation, run it again from
    /// its start, and compare the tree with that of one whole run.
    #[test]
    fn scripts_can_be_run_again_from_anywhere() {
        for script in SCRIPTS {
            let (setup, body) = (script.setup_ops(), script.body_ops());
            let tree_after = |runs: &[&[Op]]| {
                let executor = Executor::simulated(1, HostProfile::NONE);
                let rt = executor.rt().clone();
                let tree = executor.block_on(async {
                    let fs = MemFs::new(&rt);
                    for ops in [&[&setup[..]], runs].concat() {
                        let mut runner = Runner::new(&rt, fs.clone());
                        for op in ops {
                            let outcome = runner.apply(op).await;
                            assert!(outcome.tolerable(), "{}: {op}: {outcome}", script.name);
                        }
                        runner.close().await.expect("slots close");
                    }
                    Tree::of(fs).await.expect("the model can be read")
                });
                tree.expect("the model never waits")
            };
            let whole = tree_after(&[&body]);
            for end in 0..=body.len() {
                let again = tree_after(&[&body[..end], &body]);
                assert_eq!(whole.differences(&again), Vec::<String>::new(), "{} after {end} operations", script.name);
            }
        }
    }
}
