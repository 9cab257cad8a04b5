//! The tenants of one connection. A connection counts for each tenant that has sent a request over it, until it is closed.

use std::sync::{Arc, Mutex, PoisonError};

use super::table::{InUse, LimitTable};
use crate::convert::{Limit, Problem};
use crate::edge::connections::Connection;

/// Each tenant that the connection counts for.
type Counted = Vec<(Arc<str>, InUse)>;

/// Cheap to clone: every request of the connection has it.
#[derive(Clone)]
pub(crate) struct ConnectionTenants {
    connection: Arc<Connection>,
    /// At most one for each tenant of the table.
    tenants: Arc<Mutex<Counted>>,
}

impl ConnectionTenants {
    pub(in crate::edge) fn new(connection: Arc<Connection>) -> ConnectionTenants {
        ConnectionTenants { connection, tenants: Arc::default() }
    }

    /// Counts the connection for a tenant. A connection that no tenant may have is closed after the refusal.
    pub(super) fn admit(&self, limits: &LimitTable, tenant: &Arc<str>) -> Result<(), Problem> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.iter().any(|(known, _)| known == tenant) {
            return Ok(());
        }
        match limits.take(Limit::Connections, tenant) {
            Ok(taken) => tenants.extend(taken.map(|in_use| (tenant.clone(), in_use))),
            Err(problem) => {
                if tenants.is_empty() {
                    self.connection.close();
                }
                return Err(problem);
            }
        }
        Ok(())
    }
}
