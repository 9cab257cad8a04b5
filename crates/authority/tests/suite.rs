//! The tests of the authority in one binary: scripts, requirements by number, the table of states and commands,
//! an enumeration of short histories, a naive model, snapshots, fault rows and extreme values.

mod api_keys;
mod bounds;
mod enumeration;
mod extremes;
mod faults;
mod reference;
mod requirements_s0;
mod requirements_s4;
mod requirements_s4_records;
mod restoring;
mod scenarios;
mod state_command_table;
mod state_event_table;
mod support;
mod tenants;
