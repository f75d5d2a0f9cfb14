//! Results as Markdown tables.

use std::fmt::Write as _;

use seekless_lab::experiment::Row;

use super::phases::{PHASES, Phase};

/// One contestant beside others: for each placement the time of an operation, and its rate relative to each of the others;
/// with `with_device`, then what reached the device, for all of them, in the first placement.
pub fn beside(rows: &[Row], ours: &str, others: &[String], with_device: bool) -> String {
    let found = ResultRows { rows };
    let placements = found.placements();
    let mut header = vec![ours.to_owned()];
    for placement in &placements {
        header.push(format!("us, {placement}"));
        header.extend(others.iter().map(|other| format!("rate of {other}")));
    }
    let device: &[(&str, &str)] = if with_device { &[("flushes", "flushes"), ("KiB", "written_kib")] } else { &[] };
    for (title, _) in device {
        header.push(format!("{title}, {ours}"));
        header.extend(others.iter().map(|other| format!("{title}, {other}")));
    }
    let mut lines = Vec::new();
    for phase in PHASES.iter().filter(|phase| found.has(phase, ours)) {
        let mut cells = vec![format!("`{}`, one {}", phase.name, phase.unit)];
        for placement in &placements {
            let own = found.metric(phase, placement, ours, "op_us");
            cells.push(own.map_or_else(String::new, |own| spread(own, &found, phase, placement, ours)));
            for other in others {
                let rate = own.zip(found.metric(phase, placement, other, "op_us"));
                cells.push(rate.map_or_else(String::new, |(own, other)| ratio(other / own)));
            }
        }
        for (_, metric) in device {
            let counted = |name: &str| {
                let values = placements.iter().filter_map(|placement| found.metric(phase, placement, name, metric));
                values.map(number).next().filter(|_| phase.writes).unwrap_or_default()
            };
            cells.push(counted(ours));
            cells.extend(others.iter().map(|other| counted(other)));
        }
        lines.push(cells);
    }
    if lines.is_empty() {
        return format!("\n`{ours}` was not measured.\n");
    }
    let of_device = if with_device { " Flushes for 1,000 operations and KiB written for one, of each." } else { "" };
    format!(
        "\n`{ours}`: time of an operation, with the quartiles of the rounds, and its rate relative to others (higher is \
         better).{of_device}\n\n{}",
        markdown(&header, &lines)
    )
}

/// All contestants, a table for each placement: rates relative to ext4, and the times of ext4.
pub fn all(rows: &[Row]) -> String {
    const BASE: &str = "ext4";
    let found = ResultRows { rows };
    let contestants = found.contestants();
    let mut text = String::new();
    for placement in found.placements() {
        let others: Vec<&String> = contestants.iter().filter(|name| *name != BASE).collect();
        let mut header = vec![placement.clone(), format!("{BASE}, us")];
        header.extend(others.iter().map(|name| (*name).clone()));
        let mut lines = Vec::new();
        for phase in PHASES.iter().filter(|phase| contestants.iter().any(|name| found.has(phase, name))) {
            let base = found.metric(phase, &placement, BASE, "op_us");
            let mut cells = vec![phase.name.to_owned(), base.map_or_else(String::new, number)];
            for name in &others {
                let own = found.metric(phase, &placement, name, "op_us");
                cells.push(match (base, own) {
                    (Some(base), Some(own)) => ratio(base / own),
                    // Without ext4 there are times alone.
                    (None, Some(own)) => format!("{} us", number(own)),
                    _ => String::new(),
                });
            }
            lines.push(cells);
        }
        let _ = write!(
            text,
            "\nAll contestants, {placement}: rates relative to {BASE} (higher is better), and its time for an \
             operation.\n\n{}",
            markdown(&header, &lines)
        );
    }
    text
}

/// Rows by what they are about.
struct ResultRows<'a> {
    rows: &'a [Row],
}

impl ResultRows<'_> {
    fn row(&self, phase: &Phase, placement: &str, contestant: &str) -> Option<&Row> {
        let wanted = [("phase", phase.name), ("placement", placement), ("contestant", contestant)];
        let is =
            |row: &Row, name: &str, value: &str| row.dims.get(name).is_some_and(|found| found.to_string() == value);
        self.rows.iter().find(|row| wanted.iter().all(|(name, value)| is(row, name, value)))
    }

    fn metric(&self, phase: &Phase, placement: &str, contestant: &str, metric: &str) -> Option<f64> {
        self.row(phase, placement, contestant)?.metrics.get(metric).copied()
    }

    fn has(&self, phase: &Phase, contestant: &str) -> bool {
        self.placements().iter().any(|placement| self.row(phase, placement, contestant).is_some())
    }

    fn values(&self, dim: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for value in self.rows.iter().filter_map(|row| row.dims.get(dim)).map(ToString::to_string) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn placements(&self) -> Vec<String> {
        self.values("placement")
    }

    fn contestants(&self) -> Vec<String> {
        self.values("contestant")
    }
}

/// `12.3 (12.0-13.1)`.
fn spread(median: f64, found: &ResultRows<'_>, phase: &Phase, placement: &str, contestant: &str) -> String {
    let quartile = |metric| found.metric(phase, placement, contestant, metric);
    match quartile("op_us_low").zip(quartile("op_us_high")) {
        Some((low, high)) if low < high => format!("{} ({}-{})", number(median), number(low), number(high)),
        _ => number(median),
    }
}

/// Three digits, of large numbers all.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size > 0.0 => format!("{value:.2}"),
        _ => "0".to_owned(),
    }
}

/// Two digits behind the point, none before it if it is zero.
fn ratio(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn markdown(header: &[String], lines: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: String = header.iter().enumerate().map(|(index, _)| if index == 0 { "|---" } else { "|--:" }).collect();
    line(header) + &rule + "|\n" + &lines.iter().map(|cells| line(cells)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use seekless_lab::experiment::Value;

    use super::*;

    fn row(contestant: &str, phase: &str, placement: &str, op_us: f64) -> Row {
        let dims = [("contestant", contestant), ("phase", phase), ("placement", placement)];
        let metrics = [("op_us", op_us), ("op_us_low", op_us - 1.0), ("op_us_high", op_us + 1.0), ("flushes", 4.0)];
        Row {
            dims: dims.map(|(name, value)| (name.to_owned(), Value::Text(value.to_owned()))).into(),
            metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    /// Rates are of the right two, and what was not measured is empty. Method: three contestants, one of them in one
    /// phase only.
    #[test]
    fn tables_show_rates() {
        let rows = [
            row("ext4", "create", "pinned", 10.0),
            row("lfs", "create", "pinned", 20.0),
            row("null", "create", "pinned", 15.0),
            row("ext4", "delete", "pinned", 30.0),
            row("lfs", "delete", "pinned", 20.0),
        ];
        let text = beside(&rows, "lfs", &["ext4".into(), "null".into()], true);
        assert!(
            text.contains("| `create`, one file | 20.0 (19.0-21.0) | 0.50 | 0.75 | 4.00 | 4.00 | 4.00 |  |  |  |"),
            "{text}"
        );
        assert!(
            text.contains("| `delete`, one file | 20.0 (19.0-21.0) | 1.50 |  | 4.00 | 4.00 |  |  |  |  |"),
            "{text}"
        );
        let brief = beside(&rows, "lfs", &["ext4".into()], false);
        assert!(brief.contains("| `create`, one file | 20.0 (19.0-21.0) | 0.50 |\n"), "{brief}");
        assert_eq!(beside(&rows, "vlfs", &["ext4".into()], true), "\n`vlfs` was not measured.\n");
        let text = all(&rows);
        assert!(text.contains("| pinned | ext4, us | lfs | null |\n|---|--:|--:|--:|\n"), "{text}");
        assert!(text.contains("| create | 10.0 | 0.50 | 0.67 |\n| delete | 30.0 | 1.50 |  |\n"), "{text}");
        assert!(all(&[]).is_empty());
    }
}
