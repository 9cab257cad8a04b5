//! A node: its machine, its process, and the roles that the process can have.

use std::collections::BTreeMap;
use std::time::Duration;

use authority::Time;
use cluster::FailureDetector;
use coordinator::Standby;
use ledger::postgres::{Feed, FeedOptions, Holding, Kept, Stream};

use super::NodeId;
use super::absence::Absences;
use super::config::ClusterConfig;
use super::edge::Edge;
use super::owner::Owner;
use super::stream::Outgoing;
use super::take_over::TakingOver;

pub(crate) struct Node {
    pub id: NodeId,
    /// Counts the processes that ran on this machine.
    pub life: u64,
    pub is_up: bool,
    pub wall_ahead_ms: i64,
    pub suspended_until: u64,
    /// When the machine stood still or could not use the database.
    pub silences: Absences,
    /// When it could not reach another node.
    pub link_cuts: Absences,
    /// When the database did not know that it could take over: it had not said so, or a failover had undone that.
    pub unknown: Absences,
    pub unknown_since: Option<u64>,
    /// When it last decided to take over.
    pub decided_at: u64,
    pub kept: Kept,
    pub feed: Feed,
    pub detector: FailureDetector,
    /// What the detector knows of the stream.
    pub stream_seen: Stream,
    pub standby: Option<Standby>,
    pub taking_over: Option<TakingOver>,
    pub owner: Option<Owner>,
    /// The owner that requests are forwarded to, with its epoch.
    pub route: Option<(u64, NodeId)>,
    /// Whether this process has owned the ledger.
    pub has_owned: bool,
    pub is_forked: bool,
    pub is_draining: bool,
    /// Some node has said that something changed.
    pub was_notified: bool,
    /// Whether it could take over at once.
    pub is_hot: bool,
    /// What its row says that it holds, and on which server.
    pub shown: Option<(u64, Holding)>,
    /// Whether a failover may have undone something, as far as it has seen.
    pub is_in_doubt: bool,
    pub next_look: u64,
    pub last_look: u64,
    pub edge: Edge,
    /// The stream that this node has asked for, and of whom.
    pub incoming: Option<(u64, NodeId)>,
    pub incoming_since: u64,
    /// The streams that this node sends, by number.
    pub outgoing: BTreeMap<u64, Outgoing>,
}

impl Node {
    pub(crate) fn new(id: NodeId, wall_ahead_ms: i64, config: &ClusterConfig) -> Node {
        Node {
            id,
            life: 0,
            is_up: false,
            wall_ahead_ms,
            suspended_until: 0,
            silences: Absences::default(),
            link_cuts: Absences::default(),
            unknown: Absences::default(),
            unknown_since: None,
            decided_at: 0,
            kept: Kept::default(),
            feed: feed(config),
            detector: detector(config),
            stream_seen: Stream::default(),
            standby: None,
            taking_over: None,
            owner: None,
            route: None,
            has_owned: false,
            is_forked: false,
            is_draining: false,
            was_notified: false,
            is_hot: false,
            shown: None,
            is_in_doubt: false,
            next_look: u64::MAX,
            last_look: 0,
            edge: Edge::default(),
            incoming: None,
            incoming_since: 0,
            outgoing: BTreeMap::new(),
        }
    }

    /// A new process without memory.
    pub(crate) fn start(&mut self, config: &ClusterConfig) {
        let before = std::mem::replace(self, Node::new(self.id, self.wall_ahead_ms, config));
        (self.life, self.is_up) = (before.life + 1, true);
        // The machine stays what it is.
        (self.suspended_until, self.decided_at) = (before.suspended_until, before.decided_at);
        (self.silences, self.link_cuts) = (before.silences, before.link_cuts);
    }

    /// The process is gone.
    pub(crate) fn end(&mut self, config: &ClusterConfig) {
        let life = self.life;
        self.start(config);
        (self.life, self.is_up) = (life, false);
    }

    /// The node's own clock, which never steps.
    pub(crate) fn clock(&self, now: u64) -> Time {
        Time(now.saturating_add_signed(self.wall_ahead_ms))
    }

    pub(crate) fn stream(&self) -> Stream {
        *self.kept.stream().borrow()
    }

    /// Whether its row must say what it newly holds: others decide by it who takes over.
    pub(crate) fn hides_holding(&self) -> bool {
        self.is_in_doubt && self.shown.is_some_and(|(_, shown)| shown != self.kept.holding())
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_serving)
    }
}

fn detector(config: &ClusterConfig) -> FailureDetector {
    FailureDetector::new(Duration::from_millis(config.takeover_after_ms))
}

fn feed(config: &ClusterConfig) -> Feed {
    let answers_wait_for_standby = config.answers_wait_for_standby;
    Feed::new(FeedOptions { hot_standbys: 1, answers_wait_for_standby })
}
