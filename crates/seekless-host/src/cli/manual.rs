//! `seekless completions` and `seekless man`

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use seekless::stack;
use seekless_lab::output::{self as files, Replace, Wish};

use super::fit::fit;
use super::{Done, Failure, completion, output};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless completions bash > ~/.local/share/bash-completion/completions/seekless
  seekless completions fish > ~/.config/fish/completions/seekless.fish

Exit codes: 0 printed, 2 wrong usage")]
pub(super) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages into a directory
#[derive(clap::Args)]
#[command(after_help = "The page seekless-stack.5, about stack lines, belongs into man5, all others into man1.

Example:
  seekless man /usr/local/share/man/man1

Exit codes: 0 written, 1 failed, 2 wrong usage")]
pub(super) struct ManArgs {
    /// An existing directory
    directory: PathBuf,

    /// Replace files that already exist and are no manual pages of this program
    #[arg(short, long)]
    force: bool,
}

pub(super) fn completions(args: &CompletionsArgs) -> Done {
    output::print_raw(&completion::script(&args.shell.to_string())?)?;
    Ok(0)
}

pub(super) fn pages(args: &ManArgs, command: Command) -> Done {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let replace = if args.force { Replace::Always } else { Replace::Own(is_page) };
    let wish = Wish::new(replace);
    write_pages(&command, &args.directory, &wish)?;
    files::write(&args.directory.join("seekless-stack.5"), stack_page(&stack::help()).as_bytes(), &wish)?;
    Ok(0)
}

/// Columns of a page: manual pages are read on 80, and indented by 7.
const PAGE_COLUMNS: usize = 72;

/// The page of section 5: what a stack line can say, set as `seekless list` prints it on a terminal.
fn stack_page(help: &str) -> String {
    let source = concat!("seekless ", env!("CARGO_PKG_VERSION"));
    let lines: String = fit(help, PAGE_COLUMNS).lines().flat_map(divided).map(|line| escaped(&line) + "\n").collect();
    format!(
        ".TH seekless\\-stack 5 \"\" \"{source}\" \"Seekless\"\n.SH NAME\nseekless\\-stack \\- what a stack line can say\n.SH DESCRIPTION\n.nf\n\
         {lines}.fi\n.SH \"SEE ALSO\"\nseekless(1), seekless\\-list(1)\n"
    )
}

/// A line whose choices, `one|two|three`, are too long for a page continues behind a bar, indented further.
fn divided(line: &str) -> Vec<String> {
    let indent = " ".repeat(line.len() - line.trim_start().len() + 4);
    let (mut lines, mut rest) = (Vec::new(), line.to_owned());
    while rest.chars().count() > PAGE_COLUMNS
        && let Some(end) = rest.char_indices().take(PAGE_COLUMNS).filter(|(_, letter)| *letter == '|').last()
    {
        let next = format!("{indent}{}", &rest[end.0 + 1..]);
        rest.truncate(end.0 + 1);
        lines.push(std::mem::replace(&mut rest, next));
    }
    lines.push(rest);
    lines
}

/// A page for `command`, and one for each command below it.
fn write_pages(command: &Command, directory: &Path, wish: &Wish) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, directory, wish)?;
    }
    let man = Man::new(command.clone()).source(concat!("seekless ", env!("CARGO_PKG_VERSION"))).manual("Seekless");
    Ok(files::write(&directory.join(man.get_filename()), &page(&man, command)?, wish)?)
}

/// Accepts a manual page of this program, of whichever version.
fn is_page(file: &File) -> Result<(), String> {
    let beginning = files::beginning(file, 1024)?;
    let beginning = String::from_utf8_lossy(&beginning);
    match beginning.lines().any(|line| line.starts_with(".TH seekless")) {
        true => Ok(()),
        false => Err(format!(", and is not a manual page made by this program{}", files::FORCE)),
    }
}

/// clap's sections of the page, except that headings below the help become sections, with commands and tables verbatim.
fn page(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        page.extend_from_slice(sections(&text.to_string()).as_bytes());
    }
    Ok(page)
}

/// Converts the text below a command's help to roff. A line that ends in a colon and is followed by examples begins
/// EXAMPLES, one that says exit codes EXIT STATUS; anything else is NOTES. Indented lines are kept.
fn sections(text: &str) -> String {
    let (mut section, mut is_set, mut roff) = ("", false, String::new());
    let mut begin = |roff: &mut String, wanted: &'static str| {
        if section != wanted {
            section = wanted;
            *roff += &format!(".SH \"{wanted}\"\n");
        } else {
            *roff += ".PP\n";
        }
    };
    let mut starts_paragraph = true;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if is_set != indented && (is_set || !line.is_empty()) {
            roff += if indented { ".RS 4\n.nf\n" } else { ".fi\n.RE\n" };
            is_set = indented;
        }
        if line.is_empty() {
            starts_paragraph = true;
            continue;
        }
        if starts_paragraph && !indented {
            starts_paragraph = false;
            if matches!(line, "Example:" | "Examples:") {
                begin(&mut roff, "EXAMPLES");
                continue;
            }
            begin(&mut roff, if line.starts_with("Exit codes") { "EXIT STATUS" } else { "NOTES" });
        }
        // The heading already says it.
        roff += &escaped(line.strip_prefix("Exit codes: ").unwrap_or(line).trim_start());
        roff += "\n";
    }
    if is_set {
        roff += ".fi\n.RE\n";
    }
    roff
}

/// `line` as text: roff finds no commands in it.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples and exit codes become sections, and columns are kept.
    #[test]
    fn help_becomes_sections() {
        let text = "Times are short.\n\nExamples:\n  seekless -a 'x'   does\n  .x\n\nExit codes: 0 done,\n1 not";
        let expected = ".SH \"NOTES\"\nTimes are short.\n.SH \"EXAMPLES\"\n.RS 4\n.nf\nseekless \\-a \\(aqx\\(aq   does\n\\&.x\n\
                        .fi\n.RE\n.SH \"EXIT STATUS\"\n0 done,\n1 not\n";
        assert_eq!(sections(text), expected);
    }

    /// The page of stack lines has every word, as text.
    #[test]
    fn the_page_of_stack_lines_has_every_word() {
        let page = stack_page(&stack::help());
        assert!(page.starts_with(".TH seekless"), "{page}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let all = words(&page);
        for word in stack::WORDS {
            assert!(all.contains(&words(&escaped(word.help))), "{}", word.name);
        }
        let longest = page
            .lines()
            .filter(|line| !line.starts_with('.'))
            .map(|line| line.replace("\\-", "-").replace("\\(ga", "`").replace("\\(aq", "x"));
        let longest = longest.max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(longest.chars().count() <= PAGE_COLUMNS, "{longest}");
        let commands = page.lines().filter(|line| line.starts_with('.')).count();
        assert_eq!(commands, 6, "TH, three SH, nf and fi: {page}");
    }
}
