//! The rights that a rule of the file gives to those whom it applies to: tenants, roles and limits, as a key has them.
//!
//! Each kind of rule has these keys itself, because unknown keys are not found in structures that are flattened into others.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::Role;
use server::Grants;

/// A name and a value.
type Property = (Arc<str>, Arc<str>);

pub(super) struct Rights<'a> {
    pub tenants: &'a [String],
    pub roles: &'a [String],
    pub queues: &'a [String],
    pub worker_prefix: Option<&'a str>,
    pub properties: &'a BTreeMap<String, Vec<String>>,
}

impl Rights<'_> {
    fn properties(&self) -> Result<Vec<Property>, String> {
        if let Some((name, _)) =
            self.properties.iter().find(|(name, values)| name.is_empty() || values.is_empty())
        {
            return Err(format!("properties: {name:?} must be a name with at least one value"));
        }
        let pairs = self
            .properties
            .iter()
            .flat_map(|(name, values)| values.iter().map(|value| (Arc::from(&**name), Arc::from(&**value))));
        Ok(pairs.collect())
    }

    /// The rights as the server has them, or what is wrong with them.
    pub(super) fn grants(&self) -> Result<Grants, String> {
        let roles = self.roles.iter().map(|name| {
            let known = || Role::ALL.iter().map(|role| role.name()).collect::<Vec<_>>().join(", ");
            let found = Role::ALL.into_iter().find(|role| role.name() == name);
            found.ok_or_else(|| format!("there is no role {name:?}; the roles are {}", known()))
        });
        let roles = roles.collect::<Result<Vec<_>, _>>()?;
        if roles.is_empty() {
            return Err("a rule without roles permits nothing".to_owned());
        }
        let is_admin = roles.contains(&Role::Admin);
        if self.tenants.is_empty() != is_admin {
            return Err("a rule names its tenants, or has the role admin, which has all of them".to_owned());
        }
        for name in self.tenants.iter().chain(self.queues) {
            if let Some(what) = server::fault_of_scope_name(name) {
                return Err(format!("{name:?} {what}"));
            }
        }
        let texts = |list: &[String]| list.iter().map(|text| Arc::from(&**text)).collect();
        Ok(Grants {
            tenants: texts(self.tenants),
            roles,
            queues: texts(self.queues),
            worker_prefix: self.worker_prefix.map(Arc::from),
            properties: self.properties()?,
        })
    }
}
