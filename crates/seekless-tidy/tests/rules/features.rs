//! Dependencies have the same features for one crate as for all.

use std::collections::BTreeSet;
use std::process::Command;

use seekless_tidy::project::root;
use seekless_tidy::{ENGINE, report};

/// The packages that are built, each with its features, with the tests of what `choice` names.
fn packages(choice: &[&str]) -> BTreeSet<String> {
    let shown = ["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} {f}"];
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked"])
        .args(choice)
        .args(shown)
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A package that was shown before has a mark instead of what is below it.
    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Aim: `cargo test -p` builds nothing again that a build of all crates, or of another one, has left. Method: each crate of the engine by
/// itself against the whole workspace, as cargo resolves their features.
#[test]
fn one_crate_has_the_features_of_all() {
    let all = packages(&["--workspace"]);
    let mut problems = Vec::new();
    for name in ENGINE.iter().chain(&["seekless-lab", "seekless-host"]) {
        let one = packages(&["-p", name]);
        assert!(one.len() > 5, "only {one:?} were found: the search is broken");
        problems.extend(one.difference(&all).map(|package| format!("{name} alone: {package}")));
    }
    report(
        &problems,
        "Add the missing feature in [workspace.dependencies]. If only others use the package, a crate below all that do has it as a \
         dependency, as `typenum` and `serde_core`.",
    );
}
