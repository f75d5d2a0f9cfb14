//! Text laid out again for a narrow terminal.
//!
//! Commands write their text for a wide one: tables whose lines begin with `|`, and lines of any length. Where that is wider than
//! the terminal, in this order:
//!   1. Cells of words are wrapped.
//!   2. Where that is not enough, each row becomes a record: a line for each column.
//!   3. Other lines are broken between words. A command to be copied stays in one piece.

use std::borrow::Cow;

/// Lays out `text` for lines of `width` columns.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.lines().all(|line| columns(line) <= width) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() * 2);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let is_row = |line: &&&str| line.starts_with('|');
        let rows = lines[at..].iter().take_while(is_row).count();
        match Table::parse(&lines[at..at + rows]) {
            Some(table) => {
                out += &table.fitted(width);
                at += rows;
            }
            None => {
                out += &wrap(lines[at], width);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// A table as it was printed.
struct Table<'a> {
    lines: &'a [&'a str],
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns of numbers.
    is_right: Vec<bool>,
}

/// Lines that a wrapped cell may have: more of them read worse than records.
const LINES_MAX: usize = 4;

impl<'a> Table<'a> {
    /// The second line, of dashes, says where the columns are.
    fn parse(lines: &'a [&'a str]) -> Option<Table<'a>> {
        let [header, dashes, rows @ ..] = lines else { return None };
        if rows.is_empty() || !dashes.chars().all(|char| matches!(char, '|' | '-' | ':')) {
            return None;
        }
        let borders: Vec<usize> = dashes.chars().enumerate().filter(|(_, c)| *c == '|').map(|(at, _)| at).collect();
        let split = |line: &&str| -> Option<Vec<String>> {
            let chars: Vec<char> = line.chars().collect();
            let is_border = |at: &usize| chars.get(*at) == Some(&'|');
            let is_whole = borders.iter().all(is_border) && borders.last() == Some(&(chars.len() - 1));
            is_whole.then(|| borders.windows(2).map(|pair| chars[pair[0] + 1..pair[1]].iter().collect()).collect())
        };
        let padded: Vec<Vec<String>> = rows.iter().map(split).collect::<Option<_>>()?;
        let is_right = |column: usize| {
            let is_pushed = |cell: &String| cell.starts_with("  ") && !cell.ends_with("  ") && !cell.trim().is_empty();
            padded.iter().any(|row| is_pushed(&row[column]))
        };
        let trimmed = |row: Vec<String>| row.iter().map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        Some(Table {
            lines,
            is_right: (0..borders.len().saturating_sub(1)).map(is_right).collect(),
            header: trimmed(split(header)?),
            rows: padded.into_iter().map(trimmed).collect(),
        })
    }

    fn fitted(&self, width: usize) -> String {
        match self.lines.iter().all(|line| columns(line) <= width) {
            true => self.lines.iter().map(|line| format!("{line}\n")).collect(),
            false => self.narrower(width).map_or_else(|| self.records(width), |widths| self.wrapped(&widths)),
        }
    }

    /// Widths of the columns, of which those of words are wrapped.
    fn narrower(&self, width: usize) -> Option<Vec<usize>> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].as_str());
        let longest = |text: &str| text.split(' ').map(columns).max().unwrap_or(0);
        let least = |column: usize| {
            let of_cells = match self.is_right[column] {
                true => cells(column).map(columns).max(),
                false => cells(column).map(longest).max(),
            };
            of_cells.unwrap_or(0).max(longest(&self.header[column])).max(1)
        };
        let natural = |column: usize| cells(column).chain([self.header[column].as_str()]).map(columns).max();
        let least: Vec<usize> = (0..self.header.len()).map(least).collect();
        let mut widths: Vec<usize> = (0..self.header.len()).map(|column| natural(column).unwrap_or(0)).collect();
        let room = width.checked_sub(3 * widths.len() + 1)?;
        while widths.iter().sum::<usize>() > room {
            let widest =
                (0..widths.len()).filter(|&column| widths[column] > least[column]).max_by_key(|&c| widths[c])?;
            widths[widest] -= 1;
        }
        let is_low =
            |row: &Vec<String>| row.iter().zip(&widths).all(|(cell, &w)| broken(cell, w, 0).len() <= LINES_MAX);
        self.rows.iter().all(is_low).then_some(widths)
    }

    fn wrapped(&self, widths: &[usize]) -> String {
        let row = |cells: &Vec<String>, is_header: bool| {
            let cells: Vec<Vec<String>> =
                cells.iter().zip(widths).map(|(cell, &width)| broken(cell, width, 0)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            let line = |number: usize| {
                let cell = |column: usize| {
                    let (text, width) = (cells[column].get(number).map_or("", String::as_str), widths[column]);
                    match self.is_right[column] && !is_header {
                        true => format!(" {text:>width$} |"),
                        false => format!(" {text:width$} |"),
                    }
                };
                format!("|{}\n", (0..widths.len()).map(cell).collect::<String>())
            };
            (0..height).map(line).collect::<String>()
        };
        let dashes: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
        let rows = self.rows.iter().map(|cells| row(cells, false)).collect::<String>();
        format!("{}|{dashes}\n{rows}", row(&self.header, true))
    }

    /// A line for each cell, below the row's first one where that has no header.
    fn records(&self, width: usize) -> String {
        let first = usize::from(self.header.first().is_some_and(String::is_empty));
        let indent = 2 * first;
        let names = self.header[first..].iter().map(|name| columns(name)).max().unwrap_or(0);
        let record = |row: &Vec<String>| {
            let title = row.first().filter(|title| first == 1 && !title.is_empty());
            let mut text = title.map_or_else(String::new, |title| wrap(title, width));
            for (name, value) in self.header[first..].iter().zip(&row[first..]).filter(|(_, value)| !value.is_empty()) {
                text += &wrap(&format!("{:indent$}{name:names$}  {value}", ""), width);
            }
            text
        };
        self.rows.iter().map(record).collect::<Vec<_>>().join("\n")
    }
}

/// Breaks a line between words. What follows is indented below the second column of the line, if it has one near enough.
fn wrap(line: &str, width: usize) -> String {
    let indent = columns(line) - columns(line.trim_start());
    let text: Vec<char> = line.trim_start().chars().collect();
    let gap = text.windows(3).position(|three| three[0] == ' ' && three[1] == ' ' && three[2] != ' ');
    let hang = gap.map(|at| indent + at + 2).filter(|&hang| hang <= width / 2).unwrap_or(indent + 2);
    broken(line, width, hang).iter().map(|line| format!("{line}\n")).collect()
}

/// Lines of at most `width` columns where words allow it, all but the first one indented by `hang`.
fn broken(text: &str, width: usize, hang: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words(text) {
        let (spaces, word) = word.split_at(word.len() - word.trim_start().len());
        let line = lines.last_mut().map(|line| (columns(line), line));
        match line {
            Some((used, line)) if line.trim().is_empty() || used + columns(spaces) + columns(word) <= width => {
                *line += spaces;
                *line += word;
            }
            _ => lines.push(format!("{:hang$}{word}", "")),
        }
    }
    lines
}

/// The words of a text, each with the spaces before it. A command after a colon is one word.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let begin = rest.len() - rest.trim_start().len();
        let is_command =
            rest[begin..].starts_with("seekless ") && words.last().is_none_or(|word: &&str| word.ends_with(':'));
        let end = match is_command {
            true => rest.len(),
            false => rest[begin..].find(' ').map_or(rest.len(), |at| begin + at),
        };
        words.push(&rest[..end]);
        rest = &rest[end..];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
|             | claim                                  | found  | cases  |
|-------------|----------------------------------------|--------|--------|
| holds       | LFS creates files ten times as fast    |  7.62x | 1 of 1 |
|             | and deletes them                       | 12.00x | 0 of 1 |
";

    /// What fits stays as it is, also beside what does not.
    #[test]
    fn what_fits_is_left_alone() {
        assert!(matches!(fit(TABLE, 74), Cow::Borrowed(_)));
        let text =
            format!("{TABLE}a line that is a little longer than the table is, so that something has to change\n");
        assert!(fit(&text, 74).starts_with(TABLE));
    }

    /// Words are wrapped, numbers are not.
    #[test]
    fn cells_of_words_are_wrapped() {
        let expected = "\
|       | claim               | found  | cases  |
|-------|---------------------|--------|--------|
| holds | LFS creates files   |  7.62x | 1 of 1 |
|       | ten times as fast   |        |        |
|       | and deletes them    | 12.00x | 0 of 1 |
";
        assert_eq!(fit(TABLE, 49), expected);
    }

    /// Below that, each row is a record.
    #[test]
    fn rows_become_records() {
        let expected = "\
holds
  claim  LFS creates
         files ten times
         as fast
  found  7.62x
  cases  1 of 1

  claim  and deletes
         them
  found  12.00x
  cases  0 of 1
";
        assert_eq!(fit(TABLE, 24), expected);
    }

    /// Lines break between words, below their second column; commands and long words do not break.
    #[test]
    fn lines_are_broken_between_words() {
        for (line, expected) in [
            (
                "wrap    null layer: passes everything on",
                "wrap    null layer:\n        passes\n        everything\n        on\n",
            ),
            ("  one two three four five six", "  one two three four\n    five six\n"),
            (
                "mount it with: seekless mount 'lfs / file:a.img' DIR",
                "mount it with:\n  seekless mount 'lfs / file:a.img' DIR\n",
            ),
            ("/a/path/that/is/longer/than/that", "/a/path/that/is/longer/than/that\n"),
            ("µµµµµµµµµ µµµµµµµµµµ", "µµµµµµµµµ µµµµµµµµµµ\n"),
        ] {
            assert_eq!(fit(line, 20).trim_end(), expected.trim_end(), "{line}");
        }
    }

    /// Whatever the text and the width, no word is lost and nothing panics.
    #[test]
    fn no_word_is_lost() {
        let texts = [
            TABLE,
            "",
            "|\n",
            "|-|\n|-|\n",
            "| a |\n|---|\n",
            "| a | b |\n|---|---|\n| c |\n",
            "  \n\n  a   b\n",
            "|é|\n|-|\n|µ|\n",
        ];
        let words = |text: &str| {
            let mut words: Vec<String> = text.split([' ', '\n', '|', '-']).map(str::to_owned).collect();
            words.retain(|word| !word.is_empty());
            words.sort();
            words.dedup();
            words
        };
        for (text, width) in texts.iter().flat_map(|text| (0..80).map(move |width| (text, width))) {
            assert_eq!(words(&fit(text, width)), words(text), "{text} in {width}");
        }
    }
}
