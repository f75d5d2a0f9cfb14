//! The command that a failing test prints repeats it.

use seekless::testing::environment::package;
use seekless_tidy::project::short;
use seekless_tidy::rust::sources;
use seekless_tidy::{ENGINE, engine_folders, report};

/// Aim: the command that a failing unit test prints runs that test. Method: the crate of each module with tests,
/// against the one that `replay` assumes for it.
#[test]
fn replays_name_the_crate_of_their_test() {
    let (mut checked, mut problems) = (0, Vec::new());
    for (name, folder) in ENGINE.iter().zip(engine_folders()) {
        for source in sources(&folder) {
            let says = |word: &str| source.words.iter().any(|(other, _)| other == word);
            // An attribute `test`, in a module of tests.
            if !says("replay") || !says("test") || !source.module.contains(&"tests".to_owned()) {
                continue;
            }
            checked += 1;
            let test = format!("{}::a_test", source.module.join("::"));
            let package = package(&test);
            if package != *name {
                problems.push(format!("{}: `cargo test -p {package} {test}`", short(&source.path)));
            }
        }
    }
    assert!(checked > 20, "only {checked} modules were found: the search is broken");
    report(&problems, "The list in testing/environment.rs says which crate has which tests.");
}
