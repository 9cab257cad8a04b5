//! Whether an owner is cut off: more than half of the nodes that live cannot reach it, while it and they reach the database. The
//! others can have an owner that most nodes reach, so this one hands over.
//!
//! It has no clock, no database and no connection, like the failure detector.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ledger::postgres::LivingNode;

/// A node that the owner has not heard for this long, and that lives, cannot reach the owner.
const UNHEARD_FOR: Duration = Duration::from_secs(2);
/// A node that has not shown itself for this long may stand still: it counts anew when it is back, as it has to connect first. Nodes
/// show themselves every two seconds.
const SILENT_FOR: Duration = Duration::from_secs(3);
/// A node that was never connected to the owner has so much longer to connect: it may be starting.
const TIME_TO_CONNECT: Duration = Duration::from_secs(5);
/// For how long a node that has handed over leaves the ledger to the others.
const YIELD: Duration = Duration::from_secs(5);
/// The shortest time between two such handovers in the whole cluster. Where no node reaches any other, each owner would hand over to the
/// next one, and nobody would gain by it.
const BETWEEN_HANDOVERS: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Reachability {
    /// Since when each node that lives was not heard; none for one that is heard.
    unheard_since: BTreeMap<String, Option<Instant>>,
    stays_until: Option<Instant>,
    yields_until: Option<Instant>,
}

impl Reachability {
    /// This node owns the ledger from now on. An owner whose predecessor was cut off stays for a while, as it may be cut off too.
    pub(crate) fn owns(&mut self, previous_was_cut_off: bool, now: Instant) {
        self.unheard_since.clear();
        self.stays_until = previous_was_cut_off.then(|| now + BETWEEN_HANDOVERS);
    }

    /// Whether this owner is cut off and has to hand over. `living` are the other nodes, as the database shows them.
    pub(crate) fn is_cut_off(
        &mut self,
        living: &[LivingNode],
        is_heard: impl Fn(&str) -> bool,
        now: Instant,
    ) -> bool {
        let unheard_since = |node: &LivingNode| match self.unheard_since.get(&node.name) {
            _ if is_heard(&node.name) => None,
            Some(None) => Some(now),
            Some(since) if Duration::from_millis(node.seen_ms) >= SILENT_FOR => (*since).max(Some(now)),
            Some(since) => *since,
            None => Some(now + TIME_TO_CONNECT),
        };
        self.unheard_since = living.iter().map(|node| (node.name.clone(), unheard_since(node))).collect();
        // A node that was killed is not heard either; one that has shown itself since then lives.
        let is_lost = |node: &&LivingNode| {
            let since = self.unheard_since.get(&node.name).copied().flatten();
            since.map(|since| now.duration_since(since)).is_some_and(|unheard_for| {
                unheard_for >= UNHEARD_FOR && Duration::from_millis(node.seen_ms) < unheard_for
            })
        };
        let lost: Vec<&LivingNode> = living.iter().filter(is_lost).collect();
        let are_most = lost.len() * 2 > living.len() + 1;
        let stays = self.stays_until.is_some_and(|until| now < until);
        are_most && !stays && lost.iter().any(|node| node.can_take_over)
    }

    /// This node hands over because it is cut off.
    pub(crate) fn hands_over(&mut self, now: Instant) {
        self.yields_until = Some(now + YIELD);
    }

    /// Whether the others have had the time to take over.
    pub(crate) fn may_take_over(&self, now: Instant) -> bool {
        self.yields_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an owner sees of the nodes b, c and so on.
    struct Scene {
        reachability: Reachability,
        start: Instant,
        nodes: Vec<LivingNode>,
        heard: Vec<&'static str>,
    }

    impl Scene {
        /// A new owner. All nodes are hot.
        fn new(nodes: &[&str]) -> Scene {
            let node = |name: &&str| LivingNode { name: name.to_string(), seen_ms: 0, can_take_over: true };
            let (nodes, start) = (nodes.iter().map(node).collect(), Instant::now());
            let mut reachability = Reachability::default();
            reachability.owns(false, start);
            Scene { reachability, start, nodes, heard: Vec::new() }
        }

        /// The same after it has heard all of them.
        fn heard(nodes: &[&'static str]) -> Scene {
            let mut scene = Scene::new(nodes);
            scene.heard = nodes.to_vec();
            assert!(!scene.is_cut_off_at(0));
            scene.heard.clear();
            scene
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn is_cut_off_at(&mut self, ms: u64) -> bool {
            let (now, heard) = (self.at(ms), &self.heard);
            self.reachability.is_cut_off(&self.nodes, |node| heard.contains(&node), now)
        }

        fn seen(&mut self, name: &str, ms_ago: u64) {
            let node = self.nodes.iter_mut().find(|node| node.name == name).unwrap();
            node.seen_ms = ms_ago;
        }
    }

    #[test]
    fn c4_an_owner_that_most_nodes_do_not_reach_for_two_seconds_is_cut_off() {
        let mut scene = Scene::heard(&["b", "c"]);
        assert!(!scene.is_cut_off_at(500) && !scene.is_cut_off_at(2_499));
        assert!(scene.is_cut_off_at(2_500));
        let mut scene = Scene::heard(&["b", "c"]);
        assert!(!scene.is_cut_off_at(500));
        scene.heard = vec!["b"];
        assert!(!scene.is_cut_off_at(1_000) && !scene.is_cut_off_at(60_000), "it and b are most nodes");
        scene.heard.clear();
        assert!(!scene.is_cut_off_at(60_500) && !scene.is_cut_off_at(62_000), "b counts anew");
        assert!(scene.is_cut_off_at(62_500));
    }

    #[test]
    fn without_a_majority_on_the_other_side_the_owner_stays() {
        for (nodes, heard, expected) in [
            (vec!["b"], vec![], false),
            (vec!["b", "c", "d"], vec!["b"], false),
            (vec!["b", "c", "d"], vec![], true),
            (vec!["b", "c", "d", "e"], vec!["b"], true),
            (vec!["b", "c", "d", "e"], vec!["b", "c"], false),
        ] {
            let mut scene = Scene::heard(&nodes);
            scene.heard = heard.clone();
            scene.is_cut_off_at(500);
            assert_eq!(scene.is_cut_off_at(2_500), expected, "of {nodes:?} it hears {heard:?}");
        }
    }

    #[test]
    fn nodes_that_were_killed_or_stopped_are_not_taken_for_nodes_that_cannot_reach_the_owner() {
        let mut scene = Scene::heard(&["b", "c"]);
        assert!(!scene.is_cut_off_at(500));
        scene.seen("b", 2_100);
        assert!(!scene.is_cut_off_at(2_500), "b was not seen since it was heard last");
        scene.seen("b", 100);
        assert!(scene.is_cut_off_at(2_600));
        scene.seen("b", 2_100);
        scene.seen("c", 5_000);
        assert!(!scene.is_cut_off_at(2_600));
        scene.nodes.pop();
        assert!(!scene.is_cut_off_at(9_000), "there are two nodes");
    }

    #[test]
    fn nodes_that_stood_still_have_time_to_connect_again() {
        let mut scene = Scene::heard(&["b", "c"]);
        assert!(!scene.is_cut_off_at(500));
        scene.seen("b", 4_000);
        scene.seen("c", 4_000);
        assert!(!scene.is_cut_off_at(4_000));
        scene.seen("b", 0);
        scene.seen("c", 0);
        assert!(!scene.is_cut_off_at(4_500) && !scene.is_cut_off_at(5_999));
        assert!(scene.is_cut_off_at(6_000), "they live, and do not come");
    }

    #[test]
    fn new_nodes_have_time_to_connect() {
        let mut scene = Scene::new(&["b", "c"]);
        assert!(!scene.is_cut_off_at(0) && !scene.is_cut_off_at(6_999));
        assert!(scene.is_cut_off_at(7_000), "they live and never came");
        let mut scene = Scene::heard(&["b"]);
        scene.nodes = Scene::new(&["b", "c"]).nodes;
        assert!(!scene.is_cut_off_at(500) && !scene.is_cut_off_at(7_499), "c is starting");
        assert!(scene.is_cut_off_at(7_500));
    }

    #[test]
    fn an_owner_stays_if_no_node_that_it_does_not_hear_could_take_over() {
        let mut scene = Scene::heard(&["b", "c"]);
        scene.nodes.iter_mut().for_each(|node| node.can_take_over = false);
        assert!(!scene.is_cut_off_at(500) && !scene.is_cut_off_at(9_000));
        scene.nodes[1].can_take_over = true;
        assert!(scene.is_cut_off_at(9_100));
    }

    #[test]
    fn nodes_that_all_cannot_reach_each_other_hand_over_once_a_minute() {
        let mut scene = Scene::heard(&["b", "c"]);
        scene.reachability.owns(true, scene.start);
        assert!(!scene.is_cut_off_at(0) && !scene.is_cut_off_at(59_999));
        assert!(scene.is_cut_off_at(60_000));
        let start = scene.start;
        scene.reachability.owns(false, start);
        assert!(!scene.is_cut_off_at(0) && scene.is_cut_off_at(7_000), "the owner before it was not cut off");
    }

    #[test]
    fn a_node_that_has_handed_over_lets_the_others_go_first_for_a_while() {
        let mut scene = Scene::heard(&["b", "c"]);
        assert!(scene.reachability.may_take_over(scene.start));
        let handed_over_at = scene.start;
        scene.reachability.hands_over(handed_over_at);
        assert!(!scene.reachability.may_take_over(scene.at(4_999)));
        assert!(scene.reachability.may_take_over(scene.at(5_000)));
    }
}
