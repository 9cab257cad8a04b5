//! Flips bits on the disk between two lives (D9 to D12). What was acknowledged is never silently lost: a start
//! that needs the place refuses it by its position and serves nothing, until the operator brings a good copy back.
//! A damaged snapshot is passed over for an older one, as long as there is one.

use std::ops::ControlFlow;
use std::sync::Arc;

use authority::Position;
use ledger::digest::state_digest;
use ledger::file::{Error, FileLedger, Inspection, OpenReport, Options};
use ledger::{Reader, Recovery, RecoveryError, Seen, SnapshotInfo};

use super::Host;
use crate::bug;
use crate::env::Env;
use auditor::Covered;

/// A frame on the disk whose records were all acknowledged.
struct Frame {
    file: String,
    offset: u64,
    bytes: u64,
    first: Position,
    last: Position,
}

impl Host {
    /// Flips bits before a start, and judges what a start makes of damage that it cannot pass over.
    pub(super) fn flip_bits(&mut self, options: &Options, env: &mut Env) -> Result<(), String> {
        // Noise of a crash may be refused too, and then nobody could say why. The last start of a history, without
        // other faults, has the most to lose.
        if !env.config.bit_flips || self.noise || self.known.is_empty() || !env.rng.chance(600) {
            return Ok(());
        }
        let disk = Arc::new(self.disk.clone());
        let inspection =
            Inspection::open(disk).map_err(|error| format!("nothing was damaged yet: {error}"))?;
        let trimmed = first(&inspection)? > Position(1);
        if env.rng.chance(if trimmed { 200 } else { 600 }) {
            self.flip_in_frame(&inspection, options, env)
        } else {
            self.flip_in_snapshots(&inspection, options, env)
        }
    }

    /// A snapshot that is damaged is not used, and only such a one is called bad.
    pub(super) fn judge_snapshots(
        &self,
        ledger: &FileLedger,
        report: &OpenReport,
        env: &mut Env,
    ) -> Result<(), String> {
        if let Some((name, why)) =
            report.bad_snapshots.iter().find(|(name, _)| !self.bad_snapshots.contains(name))
        {
            return Err(format!("{name} was not damaged, but is passed over: {why}"));
        }
        let snapshots = ledger.reader().snapshots().map_err(|error| error.to_string())?;
        if let Some(used) = snapshots.last().filter(|info| self.bad_snapshots.contains(&info.name)) {
            return Err(format!("{} is damaged, and used", used.name));
        }
        if !report.bad_snapshots.is_empty() {
            env.coverage.bump(Covered::FlippedSnapshot);
        }
        Ok(())
    }

    fn flip_in_frame(&self, inspection: &Inspection, options: &Options, env: &mut Env) -> Result<(), String> {
        let frames = self.acknowledged(inspection)?;
        let last_only = env.rng.chance(250);
        let Some(frame) = (if last_only { frames.last() } else { env.rng.pick(&frames) }) else {
            return Ok(());
        };
        let bit = 8 * frame.offset + env.rng.below(8 * frame.bytes);
        env.note(&[40, frame.first.0, bit], || format!("bit {bit} of {} is flipped", frame.file));
        self.disk.flip(&frame.file, bit);
        let judged = if self.starts_without(inspection, frame) {
            self.judge_history(frame, options, env)
        } else {
            self.judge_refusal(options, env, |damage| names(damage, frame)).inspect(|()| {
                let last = frames.last().is_some_and(|last| last.first == frame.first);
                env.coverage.bump(if last { Covered::FlippedLastFrame } else { Covered::FlippedFrame });
            })
        };
        // The operator brings a good copy back.
        self.disk.flip(&frame.file, bit);
        judged.map_err(|what| {
            format!(
                "bit {bit} of {} flipped, of records {} to {}: {what}",
                frame.file, frame.first, frame.last
            )
        })
    }

    fn flip_in_snapshots(
        &mut self,
        inspection: &Inspection,
        options: &Options,
        env: &mut Env,
    ) -> Result<(), String> {
        let mut good = inspection.snapshots().map_err(|error| error.to_string())?;
        good.retain(|info| !self.bad_snapshots.contains(&info.name));
        let all = env.rng.chance(400);
        let chosen = if all { &good[..] } else { &good[good.len().saturating_sub(1)..] };
        let mut flipped = Vec::new();
        for info in chosen {
            let bytes = self.disk.content(&info.name).map_or(0, |content| content.len()) as u64;
            let bit = env.rng.below(8 * bytes.max(1));
            env.note(&[41, info.end.0, bit], || format!("bit {bit} of {} is flipped", info.name));
            self.disk.flip(&info.name, bit);
            flipped.push((&info.name, bit));
        }
        if flipped.len() < good.len() || first(inspection)? == Position(1) {
            // What is left is enough; the damaged files stay where they are.
            self.bad_snapshots.extend(flipped.into_iter().map(|(name, _)| name.clone()));
            return Ok(());
        }
        let judged = self.judge_refusal(options, env, |damage| match damage {
            Error::Damaged(damage) => damage.from == Position(1) && damage.to.is_some(),
            _ => false,
        });
        for (name, bit) in flipped {
            self.disk.flip(name, bit);
        }
        judged.map_err(|what| format!("every snapshot of a trimmed log is damaged: {what}"))?;
        env.coverage.bump(Covered::FlippedSnapshots);
        Ok(())
    }

    /// Starts as production does. The start must be refused with the right error.
    fn judge_refusal(
        &self,
        options: &Options,
        env: &Env,
        right: impl Fn(&Error) -> bool,
    ) -> Result<(), String> {
        let opened = FileLedger::open(bug::disk(env.bug, &self.disk), options.clone());
        let opened = opened.map_err(|error| RecoveryError::from(ledger::Error::from(error)));
        let started = opened.and_then(|(ledger, _)| Recovery::newest(&ledger));
        match started {
            Err(RecoveryError::Ledger(error)) if error.downcast_ref().is_some_and(&right) => Ok(()),
            Err(error) => Err(format!("the start is refused, but for something else: {error}")),
            Ok(recovery) => {
                Err(format!("a start serves all the same, up to {}", recovery.state().position()))
            }
        }
    }

    /// Damage in history that no start needs does not keep one from serving, and shows when it is read.
    fn judge_history(&self, frame: &Frame, options: &Options, env: &mut Env) -> Result<(), String> {
        let (ledger, _) = FileLedger::open(bug::disk(env.bug, &self.disk), options.clone())
            .map_err(|error| format!("a start does not need it, but is refused: {error}"))?;
        let recovery = Recovery::newest(&ledger).map_err(|error| error.to_string())?;
        let mut whole = self.replayed()?;
        if recovery.state().position() < whole.position() {
            return Err(format!("a start recovers no more than {}", recovery.state().position()));
        }
        // Unacknowledged records may have survived too.
        for bytes in self.open.iter().take((recovery.state().position().0 - whole.position().0) as usize) {
            let record = ledger::record::decode(bytes).map_err(|error| error.to_string())?;
            whole.apply(record.at, &record.event).map_err(|illegal| illegal.to_string())?;
        }
        if state_digest(recovery.state()) != state_digest(&whole) {
            return Err("what a start recovered is not what all records give".into());
        }
        let read = ledger.reader().read(frame.first, frame.last, &mut |_, _| ControlFlow::Continue(()));
        let error = read.err().ok_or("it is read as if nothing were wrong")?;
        if !error.downcast_ref().is_some_and(|error| names(error, frame)) {
            return Err(format!("it shows as something else: {error}"));
        }
        env.coverage.bump(Covered::FlippedHistory);
        Ok(())
    }

    fn acknowledged(&self, inspection: &Inspection) -> Result<Vec<Frame>, String> {
        let known = self.known.len() as u64;
        let mut frames = Vec::new();
        let walked = inspection.inspect(&mut |seen| {
            if let Seen::Batch(frame) = seen {
                let last = Position(frame.first.0 + u64::from(frame.count) - 1);
                if frame.count > 0 && last.0 <= known {
                    let file = frame.file.to_owned();
                    let (offset, bytes, first) = (frame.offset, frame.bytes, frame.first);
                    frames.push(Frame { file, offset, bytes, first, last });
                }
            }
            ControlFlow::Continue(())
        });
        walked.map(|_| frames).map_err(|error| format!("nothing was damaged yet: {error}"))
    }

    /// Whether the segment of the frame is history before the one in which replay begins.
    fn starts_without(&self, inspection: &Inspection, frame: &Frame) -> bool {
        let good = |info: &&SnapshotInfo| !self.bad_snapshots.contains(&info.name);
        let snapshots = inspection.snapshots().unwrap_or_default();
        let from = snapshots.iter().rev().find(good).map_or(Position(1), |info| info.begin.next());
        let begins =
            inspection.segments().filter(|segment| segment.first <= from).map(|segment| segment.first);
        let first = begins.max().unwrap_or(Position(1));
        inspection.segments().any(|segment| segment.name == frame.file && segment.first < first)
    }
}

fn first(inspection: &Inspection) -> Result<Position, String> {
    inspection.first().map_err(|error| error.to_string())
}

/// Whether the refusal names the place and its records.
fn names(error: &Error, frame: &Frame) -> bool {
    let (Error::Damaged(damage) | Error::UnverifiedTail(damage)) = error else { return false };
    damage.file == frame.file
        && damage.offset == frame.offset
        && damage.from == frame.first
        && damage.to.is_none_or(|to| to >= frame.first)
}
