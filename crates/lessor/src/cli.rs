//! Defines the command line.

use clap::{Parser, Subcommand};

use crate::client::{key, queue, submit, task};
use crate::{
    audit, check_config, cluster, conformance, init, log, migrate, node_command, nodes, run, serve, tables,
    up, worker,
};

/// Leases work to workers that may crash, stall, repeat themselves or lie, and accepts exactly one outcome for each
/// task.
#[derive(Parser)]
#[command(name = "lessor", version, about, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start everything in one process: one port, one data directory
    Up(up::Options),
    /// Start as a service, configured by a file
    Serve(serve::Options),
    /// Create an admin key in a data directory, offline; the first key of a server with authentication
    Init(init::Options),
    /// Validate a configuration file and print the settings in effect
    CheckConfig(check_config::Options),
    /// Run actions for a coordinator; list, drain and stop its workers
    Worker(worker::Options),
    /// Run a command remotely as if it ran here: upload its inputs, download its output and files
    Run(Box<run::Options>),
    /// Submit a task, or many from a file
    Submit(Box<submit::Options>),
    /// Show, cancel and redrive tasks
    Task(task::Options),
    /// Show and configure queues
    Queue(queue::Options),
    /// Create, list and revoke API keys
    Key(key::Options),
    /// Show who was denied and who changed what, and check that nobody changed the record of it
    Audit(audit::Options),
    /// Create a cluster on PostgreSQL, and maintain it
    Cluster(cluster::Options),
    /// List the nodes of a cluster, and who owns the ledger
    Nodes(nodes::Options),
    /// Let a node of a cluster leave
    Node(node_command::Options),
    /// Move the ledger between a data directory and PostgreSQL, verbatim
    Migrate(migrate::Options),
    /// Read the ledger offline: verify it, print it, explain the past
    Log(log::Options),
    /// Rebuild the SQL tables of a ledger in PostgreSQL, or compare them with it
    Tables(tables::Options),
    /// Run benchmarks, next to the limits of this machine
    Bench(bench::Options),
    /// Check whether a coordinator conforms to a contract, requirement by requirement
    Conformance(conformance::Options),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
