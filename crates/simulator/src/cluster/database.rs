//! The simulated database: its batches, its replica, its sessions, the rows of nodes, and what a failover loses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::Position;
use ledger::postgres::{BatchRow, Inserted, Place};
use ledger::{ClusterId, Link, SnapshotInfo};

use super::NodeId;
use super::membership::{MemberLog, Members};

/// How many snapshots stay, as in production.
const SNAPSHOTS_KEPT: usize = 2;

/// Shared with the readers of the nodes. Everything runs on one thread.
#[derive(Clone)]
pub(crate) struct Database(Arc<Mutex<Content>>);

pub(crate) struct Content {
    /// True time.
    pub now: u64,
    /// Every server that was the primary; the last one is.
    pub primaries: Vec<Primary>,
    /// Whether commits wait for a replica, which is promoted at a failover.
    pub is_synchronous: bool,
    pub snapshots: Vec<(SnapshotInfo, Vec<Vec<u8>>)>,
    pub members: Members,
    pub member_log: MemberLog,
    /// Another one after each start of a server.
    pub server_id: u64,
    /// The life of the node whose session holds the owner's lock.
    pub lock: Option<(NodeId, u64)>,
    pub sessions: BTreeMap<u64, Session>,
    pub last_session: u64,
    /// Nobody can use it until then.
    pub down_until: u64,
    /// A node cannot reach it until then.
    pub cut_until: BTreeMap<NodeId, u64>,
    /// A node that is with a server that was replaced, until then: nobody else hears of it.
    pub left_behind: Option<(NodeId, u64)>,
    /// What nodes have read since the world has looked.
    pub reads: Vec<(NodeId, Place)>,
    /// The fence is the position alone: an injected bug.
    pub is_link_ignored: bool,
}

pub(crate) struct Primary {
    pub rows: BTreeMap<Position, BatchRow>,
    /// The replica has everything before this position.
    pub replicated: Position,
    /// When the replica has the last commit so far.
    pub replica_due: u64,
    /// A server that was replaced answers reads until then.
    pub serves_until: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Session {
    pub primary: usize,
    pub node: NodeId,
    pub life: u64,
    /// The server knows by then that nobody is at the other end.
    pub ends_at: u64,
}

impl Database {
    pub(crate) fn new(is_synchronous: bool, now: u64) -> Database {
        let link = Link::origin(ClusterId([7; 16]), 0);
        let place = Place { first: Position(0), next: Position(1), link };
        let origin = BatchRow::received(place, 0, 0, 0, Arc::from([]));
        let primary = Primary {
            rows: BTreeMap::from([(place.first, origin)]),
            replicated: place.next,
            replica_due: 0,
            serves_until: u64::MAX,
        };
        Database(Arc::new(Mutex::new(Content {
            now,
            primaries: vec![primary],
            is_synchronous,
            snapshots: Vec::new(),
            members: Members::default(),
            member_log: MemberLog::default(),
            server_id: 1,
            lock: None,
            sessions: BTreeMap::new(),
            last_session: 0,
            down_until: 0,
            cut_until: BTreeMap::new(),
            left_behind: None,
            reads: Vec::new(),
            is_link_ignored: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Whether a node can use the database now.
    pub(crate) fn is_reachable(&self, node: NodeId) -> bool {
        self.now >= self.down_until && !self.is_cut(node)
    }

    /// Whether a node can read and write the rows of nodes.
    pub(crate) fn has_members(&self, node: NodeId) -> bool {
        let is_left_behind = self.left_behind.is_some_and(|(id, until)| id == node && self.now < until);
        self.is_reachable(node) && !is_left_behind
    }

    pub(crate) fn is_cut(&self, node: NodeId) -> bool {
        self.cut_until.get(&node).is_some_and(|until| self.now < *until)
    }

    pub(crate) fn current(&self) -> usize {
        self.primaries.len() - 1
    }

    pub(crate) fn primary(&mut self) -> &mut Primary {
        let last = self.current();
        &mut self.primaries[last]
    }

    pub(crate) fn rows(&self) -> &BTreeMap<Position, BatchRow> {
        &self.primaries[self.current()].rows
    }

    /// The last batch.
    pub(crate) fn last(&self) -> Place {
        last(self.rows())
    }

    /// The server that a session may use now.
    pub(crate) fn server(&self, session: u64) -> Option<usize> {
        let Session { primary, ends_at, .. } = self.sessions.get(&session)?;
        let is_up = self.now >= self.down_until && self.now < self.primaries[*primary].serves_until;
        (is_up && self.now < *ends_at).then_some(*primary)
    }

    pub(crate) fn connect(&mut self, node: NodeId, life: u64) -> u64 {
        self.last_session += 1;
        let primary = self.current();
        self.sessions.insert(self.last_session, Session { primary, node, life, ends_at: u64::MAX });
        self.last_session
    }

    /// Inserts a row behind another, as the statement of production does.
    pub(crate) fn insert(&mut self, primary: usize, before: Place, row: &BatchRow) -> Inserted {
        let is_link_ignored = self.is_link_ignored;
        let rows = &mut self.primaries[primary].rows;
        let is_behind = rows.get(&before.first).is_some_and(|stored| stored.place == before);
        if !is_behind && !is_link_ignored {
            return Inserted::NotBehind;
        }
        if rows.contains_key(&row.place.first) {
            return Inserted::Taken;
        }
        rows.insert(row.place.first, row.clone());
        Inserted::Stored { is_warned: false }
    }

    pub(crate) fn places(&self, primary: usize, from: Position, limit: usize) -> Vec<Place> {
        self.primaries[primary].rows.range(from..).take(limit).map(|(_, row)| row.place).collect()
    }

    pub(crate) fn is_last(&self, primary: usize, place: Place) -> bool {
        last(&self.primaries[primary].rows) == place
    }

    /// A process is gone, or nothing of it comes through any more. The server executes what has arrived, and notices later.
    pub(crate) fn end_sessions_of(&mut self, node: NodeId, life: u64, at: u64) {
        let of_process = |session: &&mut Session| (session.node, session.life) == (node, life);
        self.sessions
            .values_mut()
            .filter(of_process)
            .for_each(|session| session.ends_at = session.ends_at.min(at));
        self.unlock(node, life);
    }

    /// Ends all sessions, and with them the owner's lock.
    pub(crate) fn end_sessions(&mut self) {
        self.sessions.clear();
        self.lock = None;
    }

    /// A replica takes over with what it has; an asynchronous one may lack the last `lost` batches. The server that was replaced
    /// answers reads for a while.
    pub(crate) fn fail_over(&mut self, lost: usize, lingers_until: u64) -> Place {
        let is_synchronous = self.is_synchronous;
        let old = self.primary();
        old.serves_until = lingers_until;
        let mut rows = old.rows.clone();
        let replicated = old.replicated;
        if is_synchronous {
            rows.retain(|_, row| row.place.next <= replicated);
        } else {
            for _ in 0..lost.min(rows.len().saturating_sub(1)) {
                rows.pop_last();
            }
        }
        let end = last(&rows);
        let primary = Primary { rows, replicated: end.next, replica_due: 0, serves_until: u64::MAX };
        self.primaries.push(primary);
        self.members = self.member_log.undo(end.next).unwrap_or_default();
        (self.lock, self.server_id) = (None, self.server_id + 1);
        end
    }

    /// Stores a snapshot, and trims what the oldest one that stays covers.
    pub(crate) fn add_snapshot(&mut self, info: SnapshotInfo, blocks: Vec<Vec<u8>>) {
        self.snapshots.push((info, blocks));
        // A replaced owner may store an old one late.
        self.snapshots.sort_by_key(|(info, _)| (info.begin, info.end));
        let surplus = self.snapshots.len().saturating_sub(SNAPSHOTS_KEPT);
        self.snapshots.drain(..surplus);
        if self.snapshots.len() == SNAPSHOTS_KEPT {
            let floor = self.snapshots[0].0.begin;
            let end = self.last().first;
            self.primary().rows.retain(|first, row| row.place.next > floor.next() || *first == end);
        }
    }

    /// Takes the owner's lock if it is free.
    pub(crate) fn try_lock(&mut self, node: NodeId, life: u64) -> bool {
        self.lock.get_or_insert((node, life)) == &(node, life)
    }

    pub(crate) fn unlock(&mut self, node: NodeId, life: u64) {
        if self.lock == Some((node, life)) {
            self.lock = None;
        }
    }
}

fn last(rows: &BTreeMap<Position, BatchRow>) -> Place {
    let origin = Place { first: Position(0), next: Position(1), link: Link([0; 16]) };
    rows.last_key_value().map_or(origin, |(_, row)| row.place)
}
