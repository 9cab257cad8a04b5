//! Starts a program that ends with this process, also when this process is killed.

use std::process::{Child, Command};
use std::sync::mpsc::channel;

/// The kernel kills the program when the thread ends that has started it, so that thread stays.
pub(crate) fn spawn(mut command: Command) -> Child {
    let (sender, child) = channel();
    std::thread::spawn(move || {
        let _ = sender.send(command.spawn());
        loop {
            std::thread::park();
        }
    });
    child.recv().expect("the thread answers").expect("the program starts")
}
