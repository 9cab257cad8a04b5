//! Prints one row of the table: a figure, its goal and its processor time.

use super::super::load::Rate;
use super::super::name_of;
use super::super::protection::Protection;
use super::super::report::{Line, Report};

/// A figure, with a goal where there is one.
pub(super) struct Row {
    mode: &'static str,
    clients: usize,
    /// The unit is part of the name.
    name: &'static str,
    value: f64,
    goal: Option<Goal>,
    others: Vec<(&'static str, f64)>,
}

#[derive(Clone, Copy)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn value(self) -> f64 {
        match self {
            Goal::AtLeast(value) | Goal::AtMost(value) => value,
        }
    }

    /// 1 or more if the goal is reached.
    fn share_reached(self, value: f64) -> f64 {
        match self {
            Goal::AtLeast(goal) => value / goal,
            Goal::AtMost(goal) => goal / value,
        }
    }

    fn render(self) -> String {
        match self {
            Goal::AtLeast(goal) => format!("≥ {}", number(goal)),
            Goal::AtMost(goal) => format!("≤ {}", number(goal)),
        }
    }
}

impl Row {
    pub(super) fn new(mode: &'static str, clients: usize, name: &'static str, value: f64) -> Row {
        Row { mode, clients, name, value, goal: None, others: Vec::new() }
    }

    pub(super) fn goal(mut self, goal: impl Into<Option<Goal>>) -> Row {
        self.goal = goal.into();
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: f64) -> Row {
        self.others.push((name, value));
        self
    }

    /// The processor time of each unit that was counted.
    pub(super) fn costs(self, rate: &Rate) -> Row {
        self.with("server_cpu_us", rate.server_cpu_us).with("client_cpu_us", rate.client_cpu_us)
    }
}

pub(super) fn print_headings(report: &Report) {
    if !report.is_json() {
        println!("{}", columns(["what", "clients", "", "", "goal", "reached", ""]));
    }
}

/// Prints a row: columns for people, an object per line for programs.
pub(super) fn print(report: &Report, row: &Row, protection: Protection) {
    if report.is_json() {
        report.line(line(row, protection));
    } else if protection == Protection::None {
        println!("{}", text(row));
    } else {
        println!("{} ({})", text(row), name_of(&protection));
    }
}

fn line(row: &Row, protection: Protection) -> Line {
    let mut line = Line::new("reapi").with("mode", row.mode).with("clients", row.clients);
    line = line.with("protection", name_of(&protection));
    line = line.figure(row.name, row.value);
    if let Some(goal) = row.goal {
        line = line.figure("goal", goal.value()).figure("share_of_goal", goal.share_reached(row.value));
    }
    row.others.iter().fold(line, |line, (name, value)| line.figure(name, *value))
}

fn text(row: &Row) -> String {
    let goal = row.goal.map(Goal::render).unwrap_or_default();
    let reached = row.goal.map(|goal| format!("{:.2}", goal.share_reached(row.value))).unwrap_or_default();
    let others: Vec<String> =
        row.others.iter().map(|(name, value)| format!("{name}={}", number(*value))).collect();
    let (clients, value, others) = (row.clients.to_string(), number(row.value), others.join(" "));
    columns([row.mode, &clients, &value, row.name, &goal, &reached, &others])
}

fn columns([mode, clients, value, name, goal, reached, more]: [&str; 7]) -> String {
    let line = format!("{mode:<14} {clients:>7} {value:>11} {name:<20} {goal:>11} {reached:>8}  {more}");
    line.trim_end().to_owned()
}

/// With groups of three digits, and as many digits as are worth something.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{}", (value * 100.0).round() / 100.0);
    }
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_much_of_its_goal_is_reached() {
        let fast = Row::new("execute", 16, "executions_per_s", 1_234_567.8).goal(Goal::AtLeast(600_000.0));
        assert_eq!(
            text(&fast),
            "execute             16   1,234,568 executions_per_s       ≥ 600,000     2.06"
        );
        let large = Row::new("execute", 64, "server_rss_mib", 200.0).goal(Goal::AtMost(100.0));
        assert!(text(&large).ends_with("≤ 100     0.50"), "{}", text(&large));
    }

    #[test]
    fn numbers_are_shown_with_the_digits_that_matter() {
        let shown = [0.123_4, 99.5, 100.4, 1_000.0, 12_345.6].map(number);
        assert_eq!(shown, ["0.12", "99.5", "100", "1,000", "12,346"]);
    }
}
