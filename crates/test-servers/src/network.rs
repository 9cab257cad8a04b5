//! A network of hosts on this machine: a network namespace for each host, all connected to one switch. Links between two
//! hosts can be cut and healed. Needs root, `ip` and `iptables`.
//!
//! The test itself is a host too: it reaches all others, and they reach it.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Networks that can exist at one time on this machine.
const MAX_NETWORKS: u8 = 255;
/// The last byte of the address of the test.
const OWN_BYTE: u8 = 254;

/// Hosts on a switch. Dropping it removes them.
pub struct Network {
    name: String,
    /// Addresses are 198.18.N.x, of the range for tests of network devices.
    number: u8,
    hosts: Vec<Host>,
}

/// A host of a network: its namespace and its address.
#[derive(Clone, Debug)]
pub struct Host {
    namespace: String,
    address: Ipv4Addr,
}

impl Network {
    /// Creates hosts with these names, and waits until they reach each other.
    pub fn new(names: &[&str]) -> Network {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut network =
            Network { name: format!("lessor-{}-{count}", std::process::id()), number: 0, hosts: Vec::new() };
        let switch = network.switch();
        ip(&format!("netns add {switch}"));
        ip(&format!("-n {switch} link add switch type bridge"));
        ip(&format!("-n {switch} link set switch up"));
        // The name of the interface is the claim to the number.
        let claim = |number: &u8| {
            let link = format!("link add lessor{number} type veth peer name own netns {switch}");
            try_ip(&link).is_ok()
        };
        network.number = (0..MAX_NETWORKS).find(claim).expect("a network is free");
        let number = network.number;
        ip(&format!("-n {switch} link set own master switch up"));
        ip(&format!("addr add {}/24 dev lessor{number}", network.own_address()));
        ip(&format!("link set lessor{number} up"));
        for (at, name) in names.iter().enumerate() {
            let namespace = format!("{}-{name}", network.name);
            let address = Ipv4Addr::new(198, 18, number, at as u8 + 1);
            ip(&format!("netns add {namespace}"));
            ip(&format!("link add eth0 netns {namespace} type veth peer name host{at} netns {switch}"));
            ip(&format!("-n {switch} link set host{at} master switch up"));
            ip(&format!("-n {namespace} addr add {address}/24 dev eth0"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} link set eth0 up"));
            network.hosts.push(Host { namespace, address });
        }
        network
    }

    /// The host with this index.
    pub fn host(&self, at: usize) -> &Host {
        &self.hosts[at]
    }

    /// The address of the test.
    pub fn own_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, OWN_BYTE)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // With a namespace its interfaces go, and the other ends of them.
        let namespaces = self.hosts.iter().map(|host| host.namespace.clone()).chain([self.switch()]);
        for namespace in namespaces {
            let _ = try_ip(&format!("netns del {namespace}"));
        }
    }
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The same command on this host. Its process has the id of the child that is spawned.
    pub fn on(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped.args(["netns", "exec", &self.namespace]);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Drops every packet between this host and the other one. Both still reach everybody else.
    pub fn cut(&self, other: &Host) {
        self.iptables("-A", other);
    }

    /// Undoes [`Host::cut`].
    pub fn heal(&self, other: &Host) {
        self.iptables("-D", other);
    }

    fn iptables(&self, change: &str, other: &Host) {
        for (chain, side) in [("INPUT", "-s"), ("OUTPUT", "-d")] {
            let mut command = Command::new("iptables");
            command.args(["-w", change, chain, side, &other.address.to_string(), "-j", "DROP"]);
            succeeds(&mut self.on(&command)).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[track_caller]
fn ip(arguments: &str) {
    try_ip(arguments).unwrap_or_else(|error| panic!("{error}"));
}

fn try_ip(arguments: &str) -> Result<(), String> {
    succeeds(Command::new("ip").args(arguments.split(' ')))
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?} cannot run ({error}); install its package"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?} failed; it needs root: {error}")) }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use super::*;

    /// What comes of a connection to a port on which nobody listens: a host that is reached refuses it.
    fn is_reached(host: &Host) -> bool {
        let address = SocketAddr::from((host.address(), 9));
        let connected = TcpStream::connect_timeout(&address, Duration::from_secs(60));
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// The same from a host to another one, by its shell.
    fn host_reaches(host: &Host, other: &Host, patience_s: u32) -> bool {
        let script = format!("exec 3<>/dev/tcp/{}/9", other.address());
        let mut command = Command::new("timeout");
        command.args([&patience_s.to_string(), "bash", "-c", &script]);
        let output = host.on(&command).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("refused")
    }

    #[test]
    fn a_link_can_be_cut_and_healed_while_the_others_stay() {
        let network = Network::new(&["a", "b", "c"]);
        let [a, b, c] = [0, 1, 2].map(|at| network.host(at));
        assert!(is_reached(a) && is_reached(b));
        assert!(host_reaches(a, b, 60) && host_reaches(b, a, 60));
        a.cut(b);
        assert!(!host_reaches(a, b, 1) && !host_reaches(b, a, 1));
        assert!(host_reaches(a, c, 60) && host_reaches(c, b, 60) && is_reached(a));
        a.heal(b);
        assert!(host_reaches(a, b, 60) && host_reaches(b, a, 60));
    }
}
