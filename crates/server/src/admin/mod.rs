//! Endpoints for operators and monitors: health, workers and the OpenAPI document.

pub mod health;
pub mod openapi;
pub mod workers;
