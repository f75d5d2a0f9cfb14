//! Markdown pages, as far as the rules need them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::project::read;

/// A table with its heading.
pub struct Table {
    pub heading: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// Contents of a page, as far as the rules need them.
#[derive(Default)]
pub struct Page {
    pub tables: Vec<Table>,
    /// Names by which links reach its headings, in the syntax of GitHub and rustdoc.
    pub anchors: BTreeSet<String>,
    /// Targets of links and images.
    pub links: Vec<String>,
    /// Pieces of code inside text.
    pub codes: Vec<String>,
    /// Lines of code blocks that hold commands.
    pub commands: Vec<String>,
}

impl Page {
    pub fn read(path: &Path) -> Page {
        Page::parse(&read(path))
    }

    pub fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut taken: BTreeMap<String, u32> = BTreeMap::new();
        // Text of the current heading or cell, and of the last heading.
        let (mut current, mut heading) = (String::new(), String::new());
        let mut row = Vec::new();
        let mut is_shell = false;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    current.clear();
                    debug_assert!(level >= HeadingLevel::H1);
                }
                Event::End(TagEnd::Heading(_)) => {
                    heading = std::mem::take(&mut current);
                    let base = anchor_of(&heading);
                    let count = taken.entry(base.clone()).or_default();
                    page.anchors.insert(if *count == 0 { base } else { format!("{base}-{count}") });
                    *count += 1;
                }
                Event::Start(Tag::Table(_)) => {
                    page.tables.push(Table { heading: heading.clone(), header: Vec::new(), rows: Vec::new() });
                }
                Event::Start(Tag::TableCell) => current.clear(),
                Event::End(TagEnd::TableCell) => row.push(std::mem::take(&mut current)),
                Event::End(TagEnd::TableHead) => {
                    if let Some(table) = page.tables.last_mut() {
                        table.header = std::mem::take(&mut row);
                    }
                }
                Event::End(TagEnd::TableRow) => {
                    if let Some(table) = page.tables.last_mut() {
                        table.rows.push(std::mem::take(&mut row));
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    is_shell = match kind {
                        CodeBlockKind::Fenced(info) => {
                            // Words behind the language say how the block is used.
                            let language = info.split_whitespace().next().unwrap_or_default();
                            matches!(language, "" | "sh" | "console" | "shell" | "bash")
                        }
                        CodeBlockKind::Indented => true,
                    };
                }
                Event::End(TagEnd::CodeBlock) => is_shell = false,
                Event::Code(code) => {
                    current += &code;
                    page.codes.push(code.to_string());
                }
                Event::Text(text) => {
                    current += &text;
                    if is_shell {
                        page.commands.extend(text.lines().map(|line| line.trim().to_string()));
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub gives to a heading: lower case, blanks to hyphens, and no punctuation.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}
