//! The measurements of a run of a cluster: requests, failures and, for each event, the longest pause of any request.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::events::Event;
use crate::recorder::{At, Sent};

/// An error may reach its client so much later than the database was back.
const LATE_ERROR: Duration = Duration::from_secs(2);

/// An event that has happened.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub event: Event,
    pub began: At,
    /// When there was an owner again, where the event is about the owner.
    pub owned_again: Option<At>,
    /// While the database took no writes.
    pub outage: Option<(At, At)>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub event: Event,
    pub requests: usize,
    /// Requests that were sent again because their node was taken down.
    pub repeated: usize,
    pub longest_pause: Duration,
    pub owned_again_after: Option<Duration>,
    pub outage: Option<Duration>,
    /// Refused while the database took no writes.
    pub refused_in_outage: usize,
}

#[derive(Debug)]
pub(super) struct Report {
    pub requests: usize,
    pub rows: Vec<Row>,
    /// Requests that failed through a live node while the database took writes.
    pub failures: Vec<String>,
}

impl Report {
    pub(super) fn of(sent: &[Sent], events: &[Happened]) -> Report {
        let is_excused = |sent: &Sent| {
            events.iter().filter_map(|event| event.outage).any(|(from, to)| {
                sent.sent_at < to && sent.ended_at > from && sent.ended_at < to + LATE_ERROR
            })
        };
        let failed = sent.iter().filter(|sent| sent.failure.is_some() && !is_excused(sent));
        let failure = |sent: &Sent| {
            let (from, to) = (sent.sent_at.as_secs_f64(), sent.ended_at.as_secs_f64());
            let last = events.iter().rev().find(|event| event.began < sent.ended_at);
            let last = last.map(|it| format!("{:?} at {:.3}", it.event, it.began.as_secs_f64()));
            let failure = sent.failure.as_deref().unwrap_or_default();
            format!("{failure} ({from:.3} to {to:.3}, after {last:?}, {} visits)", sent.visits)
        };
        let row = |(at, happened): (usize, &Happened)| {
            let next = events.get(at + 1).map_or(At::MAX, |next| next.began);
            Row::of(
                happened,
                next,
                sent.iter().filter(|it| it.ended_at >= happened.began && it.sent_at < next),
            )
        };
        Report {
            requests: sent.len(),
            rows: events.iter().enumerate().map(row).collect(),
            failures: failed.map(failure).collect(),
        }
    }

    /// Checks the pauses that are promised. They are measured on a machine that does little else.
    pub(super) fn check_pauses(&self) -> Result<()> {
        let late = self.rows.iter().filter_map(|row| {
            let longest = row.event.longest_pause(row.outage);
            let (name, pause) = (row.event.name(), row.longest_pause);
            (pause > longest).then(|| format!("{name}: a request took {pause:?}, more than {longest:?}"))
        });
        let late: Vec<String> = late.collect();
        ensure!(late.is_empty(), "{}", late.join("\n"));
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let ms = |duration: Duration| duration.as_millis() as u64;
        let row = |row: &Row| {
            json!({
                "event": row.event.name(),
                "requests": row.requests,
                "repeated": row.repeated,
                "longestPauseMs": ms(row.longest_pause),
                "ownedAgainAfterMs": row.owned_again_after.map(ms),
                "databaseOutageMs": row.outage.map(ms),
                "refusedInOutage": row.refused_in_outage,
            })
        };
        json!({
            "requests": self.requests,
            "failed": self.failures.len(),
            "events": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn of<'a>(happened: &Happened, next: At, sent: impl Iterator<Item = &'a Sent>) -> Row {
        let Happened { event, began, owned_again, outage } = happened;
        let mut row = Row {
            event: *event,
            requests: 0,
            repeated: 0,
            longest_pause: Duration::ZERO,
            owned_again_after: owned_again.map(|at| at - *began),
            outage: outage.map(|(from, to)| to - from),
            refused_in_outage: 0,
        };
        for sent in sent {
            row.requests += 1;
            row.repeated += usize::from(sent.visits > 1);
            // What a request waited before the event or after the next one has other causes.
            let during = sent.ended_at.min(next).saturating_sub(sent.sent_at.max(*began));
            row.longest_pause = sent.pause().min(during).max(row.longest_pause);
            row.refused_in_outage += usize::from(sent.failure.is_some());
        }
        row
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<22} {:>8} {:>8} {:>12} {:>12} {:>12} {:>8}",
            "event", "requests", "repeated", "pause ms", "owner ms", "outage ms", "refused"
        )?;
        for row in &self.rows {
            let ms = |duration: Option<Duration>| {
                duration.map_or("-".to_owned(), |duration| duration.as_millis().to_string())
            };
            writeln!(
                out,
                "{:<22} {:>8} {:>8} {:>12} {:>12} {:>12} {:>8}",
                row.event.name(),
                row.requests,
                row.repeated,
                row.longest_pause.as_millis(),
                ms(row.owned_again_after),
                ms(row.outage),
                row.refused_in_outage
            )?;
        }
        write!(out, "{} requests, {} failed", self.requests, self.failures.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> At {
        At::from_millis(ms)
    }

    fn sent(from_ms: u64, to_ms: u64, failure: Option<&str>) -> Sent {
        let sent = Sent::new(at(from_ms), Duration::ZERO);
        Sent { ended_at: at(to_ms), failure: failure.map(str::to_owned), ..sent }
    }

    fn happened(event: Event, began_ms: u64, outage: Option<(u64, u64)>) -> Happened {
        let outage = outage.map(|(from, to)| (at(from), at(to)));
        Happened { event, began: at(began_ms), owned_again: None, outage }
    }

    #[test]
    fn a_request_may_fail_only_while_the_database_takes_no_writes() {
        let events =
            [happened(Event::KillOwner, 0, None), happened(Event::Promote, 5_000, Some((5_000, 6_000)))];
        let requests = [
            sent(4_000, 4_100, Some("before")),
            sent(4_900, 5_100, Some("into the outage")),
            sent(5_500, 6_500, Some("out of the outage")),
            sent(5_500, 9_000, Some("long after the outage")),
            sent(6_100, 6_200, Some("after")),
        ];
        let report = Report::of(&requests, &events);
        let failed: Vec<&str> =
            report.failures.iter().filter_map(|failure| failure.split(" (").next()).collect();
        assert_eq!(failed, ["before", "long after the outage", "after"]);
    }

    #[test]
    fn a_pause_counts_for_the_event_during_which_it_was() {
        let events = [happened(Event::KillOwner, 1_000, None), happened(Event::CutNodes, 3_000, None)];
        let report = Report::of(&[sent(900, 1_700, None), sent(2_900, 5_000, None)], &events);
        let pauses: Vec<u64> = report.rows.iter().map(|row| row.longest_pause.as_millis() as u64).collect();
        assert_eq!(pauses, [700, 2_000]);
        assert!(report.check_pauses().is_ok());
        let late = Report::of(&[sent(1_100, 2_200, None)], &events);
        assert!(late.check_pauses().is_err(), "a kill may cost a second");
    }
}
