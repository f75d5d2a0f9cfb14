//! The `seekless` program.

/// The engine allocates and frees small things for each request. With the C library's allocator, `bench smallfile` in
/// memory takes half as much processor time again, and half as much memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    seekless_host::cli::main()
}
