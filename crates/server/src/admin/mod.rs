//! Endpoints for operators and monitors: health, workers and the OpenAPI document.

pub(crate) mod health;
pub(crate) mod instances;
pub mod openapi;
pub(crate) mod worker_orders;
pub(crate) mod workers;
