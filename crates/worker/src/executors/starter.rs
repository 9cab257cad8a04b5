//! A thread that starts processes and never ends. The kernel ends a process that asked to die with its parent when the
//! very thread that started it ends, so that threads which come and go cannot start such processes.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

use super::process_group::{Bond, Started};

struct Order {
    command: Command,
    work_dir: PathBuf,
    bond: Bond,
    started: oneshot::Sender<io::Result<Started>>,
}

static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();

/// There are never more orders under way than commands.
pub(super) async fn start(command: Command, work_dir: PathBuf, bond: Bond) -> io::Result<Started> {
    let (started, answer) = oneshot::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    orders().send(Order { command, work_dir, bond, started }).map_err(|_| gone(()))?;
    answer.await.map_err(|_| gone(()))?
}

fn orders() -> &'static Sender<Order> {
    ORDERS.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for mut order in orders {
                // Nobody may be waiting any more; then what was started is dropped, which ends it.
                let _ = order.started.send(Started::new(&mut order.command, &order.work_dir, order.bond));
            }
        });
        sender
    })
}
