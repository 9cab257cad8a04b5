//! The issuers of JSON Web Tokens that are accepted beside API keys: the tables `auth.issuers` of the file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use server::{ALGORITHMS, Algorithm, ClaimRule, IssuerOptions, KeySource};

use super::rights::Rights;

/// Most issuers, and most rules of one.
const MAX_ISSUERS: usize = 100;
const MAX_RULES: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Issuer {
    /// As in the claim `iss`.
    pub issuer: String,
    /// One of these must be in the claim `aud`.
    pub audiences: Vec<String>,
    /// The issuer's key set, by https.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// The CA of the certificate at jwks_url; otherwise what the machine trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_ca_file: Option<PathBuf>,
    /// The issuer's key set, as a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    pub algorithms: Vec<String>,
    /// The claim that names the identity in messages and in the audit log.
    pub name_claim: String,
    pub rules: Vec<Rule>,
}

/// What the holder of a token may do whose claims have these values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rule {
    pub claims: BTreeMap<String, String>,
    pub tenants: Vec<String>,
    pub roles: Vec<String>,
    pub queues: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_prefix: Option<String>,
    /// The only properties that its workers may announce, each with its values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Vec<String>>,
}

impl Default for Issuer {
    fn default() -> Issuer {
        Issuer {
            issuer: String::new(),
            audiences: Vec::new(),
            jwks_url: None,
            jwks_ca_file: None,
            jwks_file: None,
            algorithms: vec!["RS256".to_owned()],
            name_claim: "sub".to_owned(),
            rules: Vec::new(),
        }
    }
}

impl Issuer {
    /// An issuer in which no key is left out.
    pub(super) fn with_every_key() -> Issuer {
        let properties = [(String::new(), Vec::new())].into();
        let rule = Rule { worker_prefix: Some(String::new()), properties, ..Rule::default() };
        Issuer {
            jwks_url: Some(String::new()),
            jwks_ca_file: Some(PathBuf::new()),
            jwks_file: Some(PathBuf::new()),
            rules: vec![rule],
            ..Issuer::default()
        }
    }

    /// The options of the server, or what is wrong with the table.
    pub(super) fn options(&self) -> Result<IssuerOptions, String> {
        if self.issuer.is_empty() {
            return Err("issuer is empty; it is the text of the claim `iss`".to_owned());
        }
        let fault = |what: &str| format!("{:?}: {what}", self.issuer);
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return Err(fault("audiences must name what tokens for this server have in the claim `aud`"));
        }
        let keys = match (&self.jwks_url, &self.jwks_file) {
            (Some(url), None) => {
                let url = check_url(url).map_err(|what| fault(&what))?;
                KeySource::Url { url, ca_file: self.jwks_ca_file.clone() }
            }
            (None, Some(_)) if self.jwks_ca_file.is_some() => {
                return Err(fault("jwks_ca_file belongs to jwks_url"));
            }
            (None, Some(file)) => KeySource::File(file.clone()),
            _ => return Err(fault("name either jwks_url or jwks_file")),
        };
        let algorithms = self.algorithms.iter().map(|name| algorithm(name)).collect::<Result<Vec<_>, _>>();
        let algorithms = algorithms.map_err(|what| fault(&what))?;
        if algorithms.is_empty() {
            return Err(fault("algorithms is empty"));
        }
        if self.rules.is_empty() || self.rules.len() > MAX_RULES {
            return Err(fault(&format!("there must be between 1 and {MAX_RULES} rules")));
        }
        let rules = self.rules.iter().map(Rule::options).collect::<Result<_, _>>();
        Ok(IssuerOptions {
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            algorithms,
            keys,
            name_claim: self.name_claim.clone(),
            rules: rules.map_err(|what| fault(&what))?,
        })
    }
}

impl Rule {
    fn options(&self) -> Result<ClaimRule, String> {
        if self.claims.is_empty() {
            return Err("a rule without claims would apply to every token of the issuer".to_owned());
        }
        let rights = Rights {
            tenants: &self.tenants,
            roles: &self.roles,
            queues: &self.queues,
            worker_prefix: self.worker_prefix.as_deref(),
            properties: &self.properties,
        };
        Ok(ClaimRule { claims: self.claims.clone(), grants: rights.grants()?.into() })
    }
}

/// Keys decide who is trusted, so nobody on the way may replace them.
fn check_url(url: &str) -> Result<String, String> {
    let is_secure = |parsed: &url::Url| match (parsed.scheme(), parsed.host()) {
        ("https", Some(_)) => true,
        ("http", Some(url::Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(url::Host::Ipv6(address))) => address.is_loopback(),
        ("http", Some(url::Host::Domain(name))) => name == "localhost",
        _ => false,
    };
    let parsed = url::Url::parse(url).ok().filter(is_secure);
    parsed.map(|_| url.to_owned()).ok_or_else(|| format!("jwks_url {url:?} must be an https:// URL"))
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let known = ALGORITHMS.into_iter().find(|algorithm| format!("{algorithm:?}") == name);
    let names = || ALGORITHMS.map(|algorithm| format!("{algorithm:?}")).join(", ");
    known.ok_or_else(|| format!("there is no algorithm {name:?}; the algorithms are {}", names()))
}

/// The options of all issuers, or one message for each that is wrong.
pub(super) fn options(issuers: &[Issuer]) -> Result<Vec<IssuerOptions>, Vec<String>> {
    let mut faults = Vec::new();
    let mut options: Vec<IssuerOptions> = Vec::new();
    for issuer in issuers.iter().take(MAX_ISSUERS) {
        match issuer.options() {
            Ok(issuer) if options.iter().any(|other| other.issuer == issuer.issuer) => {
                faults.push(format!("auth.issuers: {:?} is there twice", issuer.issuer));
            }
            Ok(issuer) => options.push(issuer),
            Err(what) => faults.push(format!("auth.issuers: {what}")),
        }
    }
    if issuers.len() > MAX_ISSUERS {
        faults.push(format!("auth.issuers: there may be {MAX_ISSUERS} issuers"));
    }
    if faults.is_empty() { Ok(options) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use authority::Role;

    use super::*;

    fn rule() -> Rule {
        let (tenants, roles) = (vec!["acme".to_owned()], vec!["builder".to_owned()]);
        let claims = [("repository".to_owned(), "acme/app".to_owned())].into();
        Rule { claims, tenants, roles, ..Rule::default() }
    }

    fn issuer() -> Issuer {
        Issuer {
            issuer: "https://ci.example".to_owned(),
            audiences: vec!["lessor".to_owned()],
            jwks_url: Some("https://ci.example/jwks".to_owned()),
            rules: vec![rule()],
            ..Issuer::default()
        }
    }

    #[test]
    fn an_issuer_needs_an_audience_keys_and_rules() {
        let good = issuer().options().unwrap();
        assert_eq!(good.algorithms, [Algorithm::RS256]);
        assert_eq!(good.rules[0].grants.roles, [Role::Builder]);
        let with = |change: fn(&mut Issuer)| {
            let mut issuer = issuer();
            change(&mut issuer);
            issuer.options().unwrap_err()
        };
        for (fault, named) in [
            (with(|issuer| issuer.issuer.clear()), "issuer is empty"),
            (with(|issuer| issuer.audiences.clear()), "audiences"),
            (with(|issuer| issuer.jwks_url = None), "either jwks_url or jwks_file"),
            (with(|issuer| issuer.jwks_file = Some("keys".into())), "either jwks_url or jwks_file"),
            (
                with(|issuer| issuer.jwks_url = Some("http://ci.example".to_owned())),
                "must be an https:// URL",
            ),
            (with(|issuer| issuer.algorithms = vec!["HS256".to_owned()]), "there is no algorithm \"HS256\""),
            (with(|issuer| issuer.algorithms = vec!["none".to_owned()]), "the algorithms are RS256, "),
            (with(|issuer| issuer.algorithms.clear()), "algorithms is empty"),
            (with(|issuer| issuer.rules.clear()), "rules"),
            (with(|issuer| issuer.rules[0].claims.clear()), "would apply to every token"),
            (with(|issuer| issuer.rules[0].roles = vec!["root".to_owned()]), "there is no role \"root\""),
            (with(|issuer| issuer.rules[0].roles.clear()), "permits nothing"),
            (with(|issuer| issuer.rules[0].tenants.clear()), "names its tenants"),
            (with(|issuer| issuer.rules[0].roles = vec!["admin".to_owned()]), "names its tenants"),
            (with(|issuer| issuer.rules[0].tenants = vec!["a\tb".to_owned()]), "control characters"),
        ] {
            assert!(fault.contains(named), "{fault} does not say {named}");
        }
        assert_eq!(options(&[issuer(), issuer()]).unwrap_err().len(), 1, "one issuer is there twice");
    }
}
