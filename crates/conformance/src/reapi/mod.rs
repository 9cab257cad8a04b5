//! The Remote Execution API, version 2, from outside: whatever serves it is asked what a build tool would ask, and a few
//! things that no honest one would. All content is random, so nothing depends on what the server already holds; commands
//! are `/bin/sh -c …`, which any worker on Linux can run.

mod action_cache;
mod actions;
mod bad_input;
mod caching;
mod capabilities;
mod cas;
mod client;
mod content;
mod digests;
mod execution;
mod names;
mod operations;
mod outcomes;
mod outputs;
mod reads;
mod requests;
mod running;
mod services;
mod trees;
mod waiting;
mod writes;

use crate::Check;

pub(crate) use actions::begin_for;

pub(crate) const THEMES: &[&[Check]] = &[
    capabilities::CHECKS,
    digests::CHECKS,
    names::CHECKS,
    cas::CHECKS,
    trees::CHECKS,
    reads::CHECKS,
    writes::CHECKS,
    action_cache::CHECKS,
    caching::CHECKS,
    execution::CHECKS,
    requests::CHECKS,
    outcomes::CHECKS,
    running::CHECKS,
    outputs::CHECKS,
    operations::CHECKS,
    services::CHECKS,
    bad_input::CHECKS,
];

const NOT_YET: &str = "whether it is served is not looked at; that it is announced only if it is, is R5";

pub(crate) const UNOBSERVABLE: &[(&str, &str)] = &[
    ("R13", "it is about the tests of functions that need not be served"),
    ("R18", NOT_YET),
    ("R19", NOT_YET),
    ("R43", NOT_YET),
    ("R57", "who may do what is the operator's to configure"),
];
