//! All actors of a history, and what they do when they are woken and answered.

use coordinator::Reply;

use super::{Actor, Client, Hostile, Operator, Out, Worker, scope};
use crate::config::SimConfig;
use crate::env::{Env, SimEvent, Ticket};
use crate::prng::Prng;

pub(crate) struct Cast(Vec<Box<dyn Actor>>);

impl Cast {
    pub(crate) fn new(rng: &mut Prng, config: &SimConfig) -> Cast {
        let mut actors: Vec<Box<dyn Actor>> = Vec::new();
        for number in 0..config.clients {
            let pace_ms = rng.between(50, 400);
            actors.push(Box::new(Client::new(number, scope(number), pace_ms, &config.features)));
        }
        for number in 0..config.workers {
            // Twins have one name.
            let name = if rng.chance(150) { "twin".to_owned() } else { format!("worker-{number}") };
            actors.push(Box::new(Worker::new(scope(number), &name, rng, config)));
        }
        if config.features.operator {
            let number = rng.below(2);
            actors.push(Box::new(Operator::new(scope(number))));
        }
        if config.hostile {
            actors.push(Box::new(Hostile::new()));
        }
        Cast(actors)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Everybody takes the first turn.
    pub(crate) fn begin(&self, env: &mut Env) {
        for actor in 0..self.len() {
            let delay = env.rng.between(0, 300);
            env.after(delay, SimEvent::Act { actor, timer: Client::TURN });
        }
    }

    pub(crate) fn answered(&mut self, ticket: Ticket, reply: Reply, env: &mut Env) -> Result<(), String> {
        if ticket.settled.replace(true) {
            return Ok(());
        }
        self.act(ticket.actor, env, |actor, out| actor.answered(ticket.call, reply, out))
    }

    pub(crate) fn give_up(&mut self, ticket: Ticket, env: &mut Env) -> Result<(), String> {
        if ticket.settled.replace(true) {
            return Ok(());
        }
        // A caller that hangs up is seen by the coordinator, unless the network swallows that too.
        ticket.gone.set(env.rng.chance(600));
        self.act(ticket.actor, env, |actor, out| actor.unanswered(ticket.call, out))
    }

    pub(crate) fn wake(&mut self, actor: usize, timer: u64, env: &mut Env) -> Result<(), String> {
        self.act(actor, env, |actor, out| actor.wake(timer, out))
    }

    fn act(
        &mut self,
        actor: usize,
        env: &mut Env,
        what: impl FnOnce(&mut dyn Actor, &mut Out),
    ) -> Result<(), String> {
        let mut out = Out {
            now: env.now,
            rng: &mut env.rng,
            calm: !env.faults,
            issued: &env.issued,
            calls: Vec::new(),
            timers: Vec::new(),
        };
        what(&mut *self.0[actor], &mut out);
        let Out { calls, timers, .. } = out;
        for (delay, timer) in timers {
            env.after(delay, SimEvent::Act { actor, timer });
        }
        calls.into_iter().try_for_each(|(call, request, patience)| env.ask(actor, call, request, patience))
    }
}
