//! Calls of a program in the text of a shell, without running it.
//!
//! Words are as the shell would make them, as far as their text says it: quotes, backslashes, continued lines, comments, redirections,
//! variables that the text itself sets. Any other variable, and what a command prints, is taken for `1`, which is a number and the
//! name of a file. Patterns of file names stay as they are. Both branches of a condition count, and a loop counts once, with its
//! first word.

use std::collections::{BTreeMap, VecDeque};

/// What the value of an unknown variable is taken for.
const UNKNOWN: &str = "1";

/// Words of the shell before which a command may begin.
const BEFORE: &[&str] = &["if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"];

/// Commands that run the command behind their own options.
const WRAPPERS: &[&str] = &["sudo", "env", "nohup", "exec", "nice", "chrt", "timeout", "xargs", "command", "taskset"];

/// The calls of `program` in a shell's text, in their order, each with all of its words.
///
/// # Errors
/// What is not closed.
pub(super) fn calls(program: &str, text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut shell = Shell::new(program, text);
    shell.commands(None)?;
    Ok(shell.found)
}

struct Shell<'a> {
    program: &'a str,
    rest: VecDeque<char>,
    variables: BTreeMap<String, String>,
    /// The ends of texts that begin behind this line, and whether a shell reads them.
    here: Vec<(String, bool)>,
    found: Vec<Vec<String>>,
}

impl<'a> Shell<'a> {
    fn new(program: &'a str, text: &str) -> Shell<'a> {
        let rest = text.chars().collect();
        Shell { program, rest, variables: BTreeMap::new(), here: Vec::new(), found: Vec::new() }
    }

    fn next_is(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(at, c)| self.rest.get(at) == Some(&c))
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.next_is(text);
        if is_next {
            self.rest.drain(..text.chars().count());
        }
        is_next
    }

    /// Reads commands until `end`, which is consumed, or the end of the text.
    fn commands(&mut self, end: Option<char>) -> Result<(), String> {
        let mut words = Vec::new();
        loop {
            let Some(&next) = self.rest.front() else {
                self.command(words)?;
                return end.map_or(Ok(()), |end| Err(format!("`{end}` is missing")));
            };
            if self.take("\\\n") {
                continue;
            }
            match next {
                ' ' | '\t' => {
                    self.rest.pop_front();
                }
                '#' => {
                    while self.rest.front().is_some_and(|c| *c != '\n') {
                        self.rest.pop_front();
                    }
                }
                _ if Some(next) == end => {
                    self.rest.pop_front();
                    return self.command(words);
                }
                '<' | '>' => self.redirection(&words)?,
                '&' if self.next_is("&>") => {
                    self.rest.pop_front();
                    self.redirection(&words)?;
                }
                '0'..='9' if matches!(self.rest.get(1), Some('<' | '>')) => {
                    self.rest.pop_front();
                    self.redirection(&words)?;
                }
                '\n' | ';' | '&' | '|' | '(' | ')' => {
                    self.rest.pop_front();
                    self.command(std::mem::take(&mut words))?;
                    if next == '\n' {
                        self.here_documents()?;
                    }
                }
                _ => words.extend(self.word()?),
            }
        }
    }

    /// A redirection, whose file is no word of the command; or the words of a process, or the end of a text that follows.
    fn redirection(&mut self, words: &[String]) -> Result<(), String> {
        if self.take("<(") || self.take(">(") {
            return self.commands(Some(')'));
        }
        let is_here = self.take("<<") && !self.take("<");
        if is_here {
            self.take("-");
        }
        while self.rest.front().is_some_and(|c| matches!(c, '<' | '>' | '&' | '|' | ' ' | '\t')) {
            self.rest.pop_front();
        }
        let target = self.word()?;
        if is_here {
            let end = target.into_iter().next().ok_or("the end of a text is missing")?;
            self.here.push((end, words.first().is_some_and(|word| is_shell(word))));
        }
        Ok(())
    }

    /// Texts that the line before has announced. What a shell will run is read like the rest: a script with a first line that says so,
    /// and `shell: "..."` of a Snakefile, in which braces hold what its own language computes.
    fn here_documents(&mut self) -> Result<(), String> {
        for (end, is_read_by_shell) in std::mem::take(&mut self.here) {
            let mut text = String::new();
            loop {
                if self.rest.is_empty() {
                    return Err(format!("no line `{end}` ends the text"));
                }
                let line: String = self.rest.iter().take_while(|c| **c != '\n').collect();
                self.rest.drain(..(line.chars().count() + 1).min(self.rest.len()));
                if line.trim_start_matches('\t') == end {
                    break;
                }
                text += &line;
                text.push('\n');
            }
            let is_script = text.lines().next().is_some_and(|line| line.starts_with("#!") && line.ends_with("sh"));
            if is_read_by_shell || is_script {
                self.found.extend(calls(self.program, &text)?);
            }
            for line in text.lines().filter_map(|line| line.trim().strip_prefix("shell: \"")?.strip_suffix('"')) {
                self.found.extend(calls(self.program, &without_braces(line))?);
            }
        }
        Ok(())
    }

    /// The next word; several, or none, if a variable without quotes makes it so.
    fn word(&mut self) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        // Without a value, it is no word yet.
        let mut word: Option<String> = None;
        while let Some(&next) = self.rest.front() {
            match next {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    self.rest.pop_front();
                    let text = word.get_or_insert_default();
                    loop {
                        match self.rest.pop_front().ok_or("a ' is not closed")? {
                            '\'' => break,
                            c => text.push(c),
                        }
                    }
                }
                '"' => {
                    self.rest.pop_front();
                    let mut text = String::new();
                    loop {
                        match *self.rest.front().ok_or("a \" is not closed")? {
                            '"' => break,
                            '$' | '`' => text += &self.expansion()?,
                            '\\' if matches!(self.rest.get(1), Some('"' | '\\' | '$' | '`' | '\n')) => {
                                self.rest.pop_front();
                                text.extend(self.rest.pop_front().filter(|c| *c != '\n'));
                            }
                            c => {
                                self.rest.pop_front();
                                text.push(c);
                            }
                        }
                    }
                    self.rest.pop_front();
                    *word.get_or_insert_default() += &text;
                }
                '\\' => {
                    self.rest.pop_front();
                    let escaped = self.rest.pop_front().ok_or("a \\ is the last character")?;
                    if escaped != '\n' {
                        word.get_or_insert_default().push(escaped);
                    }
                }
                '$' | '`' => {
                    // The value of an assignment is not split.
                    let is_assigned = word.as_deref().is_some_and(|word| word.ends_with('='));
                    let value = self.expansion()?;
                    if is_assigned {
                        *word.get_or_insert_default() += &value;
                        continue;
                    }
                    for (number, part) in value.split([' ', '\t', '\n']).enumerate() {
                        if number > 0 {
                            words.extend(word.take());
                        }
                        if !part.is_empty() {
                            *word.get_or_insert_default() += part;
                        }
                    }
                }
                c => {
                    self.rest.pop_front();
                    word.get_or_insert_default().push(c);
                }
            }
        }
        words.extend(word);
        Ok(words)
    }

    /// The value of what begins with `$` or a backquote.
    fn expansion(&mut self) -> Result<String, String> {
        if self.take("$((") {
            while !self.take("))") {
                self.rest.pop_front().ok_or("a $(( is not closed")?;
            }
            return Ok(UNKNOWN.to_owned());
        }
        if self.take("$(") {
            self.commands(Some(')'))?;
            return Ok(UNKNOWN.to_owned());
        }
        if self.take("`") {
            let mut text = String::new();
            loop {
                match self.rest.pop_front().ok_or("a ` is not closed")? {
                    '`' => break,
                    c => text.push(c),
                }
            }
            let mut inner = Shell::new(self.program, &text);
            inner.variables = self.variables.clone();
            inner.commands(None)?;
            self.found.append(&mut inner.found);
            return Ok(UNKNOWN.to_owned());
        }
        self.take("$");
        let is_braced = self.take("{");
        let mut name = String::new();
        while let Some(&c) = self.rest.front().filter(|c| c.is_alphanumeric() || **c == '_') {
            name.push(c);
            self.rest.pop_front();
        }
        if is_braced {
            // A default, or what is cut from the value.
            let is_plain = self.next_is("}");
            while !self.take("}") {
                self.rest.pop_front().ok_or("a ${ is not closed")?;
            }
            if !is_plain {
                return Ok(UNKNOWN.to_owned());
            }
        } else if name.is_empty() {
            let is_special = self.rest.front().is_some_and(|c| matches!(c, '?' | '@' | '*' | '#' | '!' | '$' | '-'));
            if !is_special {
                return Ok("$".to_owned());
            }
            self.rest.pop_front();
        }
        Ok(self.variables.get(&name).cloned().unwrap_or_else(|| UNKNOWN.to_owned()))
    }

    /// Takes a whole command: keeps it if it is a call of the program, and follows what it sets.
    fn command(&mut self, words: Vec<String>) -> Result<(), String> {
        let mut words: VecDeque<String> = words.into();
        while words.front().is_some_and(|word| BEFORE.contains(&&**word)) {
            words.pop_front();
        }
        if words.front().is_some_and(|word| word == "export") && words.get(1).is_some_and(|word| word.contains('=')) {
            words.pop_front();
        }
        while let Some((name, value)) = words.front().and_then(|word| assignment(word)) {
            // Before a command, it is for that command; its own words have been read by then.
            if words.len() == 1 {
                self.variables.insert(name, value);
            }
            words.pop_front();
        }
        let Some(first) = words.front() else { return Ok(()) };
        if first == "for" && words.get(2).is_some_and(|word| word == "in") {
            self.variables.extend(Some(words[1].clone()).zip(words.get(3).cloned()));
        } else if is_shell(first) && words.get(1).is_some_and(|word| word == "-c") {
            let text = words.get(2).cloned().unwrap_or_default();
            self.found.extend(calls(self.program, &text)?);
        } else if WRAPPERS.contains(&&**first) {
            let start = words.iter().position(|word| self.is_program(word));
            self.found.extend(start.map(|start| words.into_iter().skip(start).collect()));
        } else if self.is_program(first) {
            self.found.push(words.into());
        }
        Ok(())
    }

    fn is_program(&self, word: &str) -> bool {
        word.rsplit('/').next() == Some(self.program)
    }
}

fn is_shell(word: &str) -> bool {
    matches!(word, "sh" | "bash")
}

/// The name and the value of `NAME=VALUE`.
fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let mut characters = name.chars();
    let is_name = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

/// The text with `UNKNOWN` for each pair of braces.
fn without_braces(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + UNKNOWN + part.split_once('}').map_or(part, |(_, rest)| rest))
}

/// Aim: a call is found wherever a shell would make it, with the words that a shell would give it. Method: texts and their calls.
#[test]
fn calls_are_found_as_a_shell_makes_them() {
    let found = |text: &str| {
        let found = calls("p", text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
        found.iter().map(|words| words.join("~")).collect::<Vec<_>>().join("\n")
    };
    for (text, expected) in [
        ("p a b # p c\n# p d\np 'a # b' \"c;d\"\\ e\n", "p~a~b\np~a # b~c;d e"),
        ("p a \\\n  b\n", "p~a~b"),
        ("sudo -E p a && x | p b || p c; p d &\n", "p~a\np~b\np~c\np~d"),
        ("timeout 5 nice p a\n./q/p b\nxp c\necho p d\n", "p~a\n./q/p~b"),
        ("A=1 B=x p a\nA='b c'\np \"$A\" $A \"${A}x\" $NONE/$3\n", "p~a\np~b c~b~c~b cx~1/1"),
        ("p a >out 2>&1 <in >>x 2>/dev/null b &>c\n", "p~a~b"),
        ("x=$(p a $(p b))\np $x \"`p c`\" $((1 + 2))\n", "p~b\np~a~1\np~c\np~1~1~1"),
        ("diff <(p a) <(p b)\n(cd x && p c)\n", "p~a\np~b\np~c"),
        ("for i in b c; do p \"$i\"; done\nif ! p d; then p e; else p f; fi\n", "p~b\np~d\np~e\np~f"),
        ("cat >x <<'END'\np a\nEND\np b\n", "p~b"),
        ("cat >x <<END\n#!/bin/sh\np a && exit\nEND\nsh <<E\np b\nE\nbash -c 'p c'\n", "p~a\np~b\np~c"),
        ("cat >Snakefile <<'END'\n  shell: \"p a-{N} {x.i}/{N}\"\nEND\n", "p~a-1~1/1"),
        ("p ''\np \"\"\np $\n", "p~\np~\np~$"),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
    for open in ["p 'a\n", "p \"a\n", "x=$(p a\n", "p ${a\n", "cat <<END\np\n", "p $((1\n", "p \\"] {
        assert!(calls("p", open).is_err(), "{open}");
    }
}
