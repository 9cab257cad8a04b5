//! The ledger on the fake disk: what each fault does to it, and a sweep through all of them.

mod basics;
mod damage;
mod decoders;
mod faults;
mod inspect;
mod random;
mod reserve_race;
mod script;
mod sweep;
