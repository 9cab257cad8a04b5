//! Records and snapshot entries: round trips, hostile bytes, the released format, and the snapshot that is taken
//! while records go on.

mod documented;
mod fixture;
mod history;
mod hostile;
mod load;
mod reader;
mod round_trip;
mod samples;
mod strategies;
mod window;
