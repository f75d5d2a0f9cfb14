//! The `seekless` program.

fn main() -> std::process::ExitCode {
    seekless_host::cli::main()
}
