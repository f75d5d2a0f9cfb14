//! What a panic does to a daemon: the process ends at once, and leaves a mount that gives errors.

use std::backtrace::Backtrace;

/// How long the last words may take. Without memory they may wait for themselves.
const LAST_WORDS_S: u32 = 5;

/// From now on a panic is a line in the log and the end of the process, as if it had been killed: nothing is closed or written any more, and
/// a supervisor mounts again. To be called before there are threads.
pub(super) fn ends_the_process() {
    // Where this variable is set, a failed allocation writes a backtrace, which allocates. Both take one lock: without memory, the process
    // would wait for itself, and its users with it.
    const VARIABLE: &str = "RUST_BACKTRACE";
    let is_wanted = std::env::var_os(VARIABLE).is_some_and(|value| value != "0");
    // SAFETY: there are no other threads that could read the environment.
    unsafe { std::env::remove_var(VARIABLE) };
    std::panic::set_hook(Box::new(move |panic| {
        // SAFETY: it touches no memory. Nothing handles the signal, so it ends the process.
        unsafe { libc::alarm(LAST_WORDS_S) };
        log::error!("a bug ends this process: {panic}");
        if is_wanted {
            log::error!("{}", Backtrace::force_capture());
        }
        std::process::abort()
    }));
}
