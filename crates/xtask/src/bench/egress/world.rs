//! A small internet in a network of its own: names, servers with certificates of an
//! authority that this host trusts, and the peers. Nothing of the host's is changed.

use std::fs::{self, File};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::shell::Shell;
use crate::command;

const CLIENT: &str = include_str!("client.py");
const ORIGIN: &str = include_str!("origin.py");
const MODEL: &str = include_str!("model.py");
const NGINX: &str = include_str!("nginx.conf");
const SQUID: &str = include_str!("squid.conf");
const PEERS: &str = include_str!("peers.nft");

/// The names of the origins; [`HOSTS`] has their addresses.
pub(crate) const ORIGIN_HOST: &str = "origin.example";
pub(crate) const MITMPROXY_HOST: &str = "mitmproxy.example";
pub(crate) const SQUID_HOST: &str = "squid.example";
pub(crate) const SINK_HOST: &str = "sink.example";
pub(crate) const MODEL_HOST: &str = "model.example";
const MODEL_ADDRESS: &str = "93.184.216.38";
const HOSTS: [(&str, &str); 5] = [
    (ORIGIN_HOST, "93.184.216.34"),
    (MITMPROXY_HOST, "93.184.216.35"),
    (SQUID_HOST, "93.184.216.36"),
    (MODEL_HOST, MODEL_ADDRESS),
    (SINK_HOST, "93.184.216.37"),
];
const NAME_SERVER: &str = "9.9.9.9";

/// Ports of the origin for other services than the web.
pub(crate) const ECHO: u16 = 7;
pub(crate) const SINK: u16 = 9;
pub(crate) const SOURCE: u16 = 19;

/// The user and group id of proxies, whose own packets to a peer's address are not redirected to
/// the peer: `proxy` of the distribution's `base-passwd`. Also in `peers.nft`.
const PROXY_ID: &str = "13";

/// The system's list of authorities, which both sides of Atoll read.
const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";

const PYTHON: &str = "/usr/bin/python3";
/// Programs without which nothing can be measured.
const NEEDED: [&str; 8] = [
    "ip", "mount", "openssl", "dnsmasq", "nginx", "h2load", "nft", PYTHON,
];

/// The credential in requests.
pub(crate) const KEY: &str = "sk-bench-7Qm2Zt9Lw4Xc8Rv1Yk6Np3Bd5Hs0Jf";
const CREDENTIAL: &str = r#"
[credential.bench]
source = { environment = "BENCH_KEY" }
to = "origin.example"
place = { header = "authorization", form = "Bearer {}" }
"#;

const PATIENCE: Duration = Duration::from_secs(20);

/// The sizes of the files that are requested, bytes.
pub(crate) const SMALL_BYTES: usize = 1024;
pub(crate) const BIG_BYTES: u64 = 1 << 30;
pub(crate) const BIG: &str = "big";
/// The file that is transferred once before anything is measured.
pub(crate) const WARMING: &str = "warming";
pub(crate) const WARMING_BYTES: u64 = 64 << 20;

pub(crate) struct World {
    program: PathBuf,
    place: PathBuf,
    workspace: PathBuf,
    processes: Vec<Process>,
    shells: usize,
}

/// A process that is killed on drop, with all below it.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The first one first, which would start others in place of those that end. Until
        // it is waited for, nobody else has its number.
        for id in super::process::with_descendants(self.0.id()) {
            let mut kill = Command::new("kill");
            let _ = kill.args(["-KILL", &id.to_string()]).output();
        }
        let _ = self.0.wait();
    }
}

impl World {
    /// Makes the small internet, in a network and among mounts of this process's own.
    pub(crate) fn new(program: &Path, place: &Path) -> Result<Self> {
        for needed in NEEDED {
            if command::find(needed).is_none() {
                bail!(
                    "{needed} is not installed; `cargo xtask bench egress --install` installs it"
                );
            }
        }
        let mut world = Self {
            program: program.to_path_buf(),
            place: place.to_path_buf(),
            workspace: place.join("workspace"),
            processes: Vec::new(),
            shells: 0,
        };
        world.files()?;
        world.addresses()?;
        world.certificates()?;
        world.servers()?;
        Ok(world)
    }

    fn files(&self) -> Result<()> {
        let files = self.place.join("files");
        fs::create_dir(&files)?;
        fs::create_dir(&self.workspace)?;
        fs::write(self.workspace.join("client.py"), CLIENT)?;
        fs::write(self.place.join("origin.py"), ORIGIN)?;
        fs::write(self.place.join("model.py"), MODEL)?;
        let own = self.place.to_string_lossy();
        for (name, text) in [
            ("nginx.conf", NGINX),
            ("squid.conf", SQUID),
            ("peers.nft", PEERS),
        ] {
            fs::write(self.place.join(name), text.replace("PLACE", &own))?;
        }
        fs::write(files.join("small"), "x".repeat(SMALL_BYTES))?;
        // Of holes: they take no room on the disk.
        File::create(files.join(BIG))?.set_len(BIG_BYTES)?;
        File::create(files.join(WARMING))?.set_len(WARMING_BYTES)?;
        fs::write(
            self.place.join("resolv.conf"),
            format!("nameserver {NAME_SERVER}\n"),
        )?;
        Ok(())
    }

    fn addresses(&self) -> Result<()> {
        let ip = |words: &[&str]| command::output(Command::new("ip").args(words)).map(drop);
        ip(&["link", "set", "lo", "up"])?;
        for address in HOSTS
            .iter()
            .map(|(_, address)| *address)
            .chain([NAME_SERVER])
        {
            ip(&["address", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
        self.cover("resolv.conf", "/etc/resolv.conf")
    }

    /// Puts a file of ours over one of the host's, for the processes below this one.
    fn cover(&self, name: &str, over: &str) -> Result<()> {
        let mut mount = Command::new("mount");
        command::output(mount.arg("--bind").arg(self.place.join(name)).arg(over)).map(drop)
    }

    fn certificates(&self) -> Result<()> {
        let request = |name: &str, subject: &str, words: &[&str]| {
            let mut openssl = Command::new("openssl");
            openssl.current_dir(&self.place).args([
                "req",
                "-x509",
                "-nodes",
                "-days",
                "2",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
                "-subj",
                subject,
            ]);
            command::output(openssl.args(words)).map(drop)
        };
        request(
            "authority",
            "/CN=authority of the small internet",
            &["-addext", "keyUsage=critical,keyCertSign"],
        )?;
        let names: Vec<String> = HOSTS
            .iter()
            .map(|(name, _)| format!("DNS:{name}"))
            .collect();
        let names = format!("subjectAltName={}", names.join(","));
        let signed = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        let ends = ["-addext", "basicConstraints=critical,CA:FALSE"];
        let words = [&signed[..], &ends, &["-addext", &names]].concat();
        request("server", "/CN=origin.example", &words)?;
        let mut trusted = fs::read(TRUSTED).unwrap_or_default();
        trusted.extend(fs::read(self.place.join("authority.pem"))?);
        fs::write(self.place.join("trusted.pem"), trusted)?;
        self.cover("trusted.pem", TRUSTED)
    }

    fn servers(&mut self) -> Result<()> {
        let records = HOSTS.map(|(name, address)| format!("--host-record={name},{address}"));
        let mut dnsmasq = self.command("dnsmasq");
        dnsmasq.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
        ]);
        dnsmasq.args([
            "--no-hosts",
            "--user=root",
            "--pid-file=",
            "--bind-interfaces",
        ]);
        dnsmasq.args(["--local=/example/", "--listen-address", NAME_SERVER]);
        let mut nginx = self.command("nginx");
        nginx.arg("-c").arg(self.place.join("nginx.conf"));
        let mut origin = self.command(PYTHON);
        let [(_, first), .., (_, last)] = HOSTS;
        origin.arg("-I").arg(self.place.join("origin.py"));
        origin.arg(&self.place).args([first, last]);
        for command in [dnsmasq.args(records), &mut nginx, &mut origin] {
            let process = self.start(command)?;
            self.processes.push(process);
        }
        wait("the name server", || {
            (ORIGIN_HOST, 443).to_socket_addrs().is_ok()
        })?;
        wait("nginx", || TcpStream::connect((ORIGIN_HOST, 443)).is_ok())?;
        wait("the origin", || self.place.join("listening").exists())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(command::find(program).unwrap_or_else(|| program.into()));
        command.current_dir(&self.place);
        command
    }

    /// Starts a process that runs until it is dropped.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Process> {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.place.join("servers-log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Process(child))
    }

    /// Passes a plain connection on from this port of the loopback device to one of the
    /// origin's.
    pub(crate) fn socat(&self, from: u16, to: u16) -> Result<Process> {
        if command::find("socat").is_none() {
            bail!("socat is not installed");
        }
        let [(_, origin), ..] = HOSTS;
        let mut socat = self.command("socat");
        // Its own block is of 8 KiB: this is the size of Atoll's.
        socat.args(["-b", "65536"]);
        socat.arg(format!("TCP-LISTEN:{from},bind=127.0.0.1,reuseaddr,fork"));
        let process = self.start(socat.arg(format!("TCP:{origin}:{to}")))?;
        wait("socat", || TcpStream::connect(("127.0.0.1", from)).is_ok())?;
        Ok(process)
    }

    /// Starts the server that an agent takes for its model.
    pub(crate) fn model(&self) -> Result<Process> {
        let mut model = self.command(PYTHON);
        model.arg("-I").arg(self.place.join("model.py"));
        model.arg(&self.place).args([MODEL_ADDRESS, KEY]);
        let process = self.start(&mut model)?;
        wait("the model", || {
            TcpStream::connect((MODEL_ADDRESS, 443)).is_ok()
        })?;
        Ok(process)
    }

    fn redirect(&self) -> Result<()> {
        let mut nft = self.command("nft");
        command::output(Command::new("nft").args(["delete", "table", "ip", "peers"])).ok();
        command::output(nft.arg("-f").arg(self.place.join("peers.nft"))).map(drop)
    }

    pub(crate) fn mitmproxy(&self) -> Result<Process> {
        if command::find("mitmdump").is_none() {
            bail!("mitmproxy is not installed");
        }
        self.redirect()?;
        let own = self.place.join("mitmproxy");
        fs::create_dir_all(&own)?;
        self.give(&own)?;
        let mut mitmproxy = self.command("setpriv");
        mitmproxy.args([
            &format!("--reuid={PROXY_ID}"),
            &format!("--regid={PROXY_ID}"),
        ]);
        mitmproxy.args(["--clear-groups", "--", "mitmdump", "--quiet"]);
        mitmproxy.args(["--mode", "transparent", "--listen-port", "8080"]);
        let set = [
            // Its clients here have public addresses.
            "block_global=false".to_owned(),
            format!("confdir={}", own.display()),
            format!(
                "ssl_verify_upstream_trusted_ca={}/authority.pem",
                self.place.display()
            ),
        ];
        mitmproxy.env("HOME", &own);
        mitmproxy.args(set.iter().flat_map(|set| ["--set", set]));
        let process = self.start(&mut mitmproxy)?;
        wait("mitmproxy", || {
            TcpStream::connect(("127.0.0.1", 8080)).is_ok()
        })?;
        Ok(process)
    }

    pub(crate) fn squid(&self) -> Result<Process> {
        const CERTIFICATES: &str = "/usr/lib/squid/security_file_certgen";
        if command::find("squid").is_none() || !Path::new(CERTIFICATES).exists() {
            bail!("squid-openssl is not installed");
        }
        self.redirect()?;
        let own = self.place.join("squid-certificates");
        let mut make = Command::new(CERTIFICATES);
        command::output(make.arg("-c").arg("-s").arg(&own).args(["-M", "4MB"]))?;
        for name in ["squid-certificates", "authority.key"] {
            self.give(&self.place.join(name))?;
        }
        File::create(self.place.join("squid-log"))?;
        self.give(&self.place.join("squid-log"))?;
        let mut squid = self.command("squid");
        squid.args(["-N", "-f"]).arg(self.place.join("squid.conf"));
        let process = self.start(&mut squid)?;
        wait("squid", || TcpStream::connect(("127.0.0.1", 3129)).is_ok())?;
        Ok(process)
    }

    /// Makes the user that proxies run as the owner of a path.
    fn give(&self, path: &Path) -> Result<()> {
        let mut chown = Command::new("chown");
        let owner = format!("{PROXY_ID}:{PROXY_ID}");
        command::output(chown.args(["-R", &owner]).arg(path)).map(drop)
    }

    /// Starts a shell without anything between it and the servers.
    pub(crate) fn outside(&mut self) -> Result<Shell> {
        let trusted = format!("SSL_CERT_FILE={}/authority.pem", self.place.display());
        self.shell(&["env", &trusted])
    }

    /// Starts a shell in a sandbox that may reach these hosts.
    pub(crate) fn inside(&mut self, allow: &[&str]) -> Result<Shell> {
        let words = self.atoll(allow);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.shell(&words)
    }

    /// Starts a shell in a sandbox that may reach the origin, with a key in its environment: its
    /// own, or a placeholder.
    pub(crate) fn inside_with_a_key(&mut self, is_credential: bool) -> Result<Shell> {
        let (name, credential) = match is_credential {
            true => ("with-credential.toml", CREDENTIAL),
            false => (
                "without-credential.toml",
                "[environment]\npass = [\"BENCH_KEY\"]\n",
            ),
        };
        let profile = self.place.join(name);
        let text = format!("[network]\nallow = [\"{ORIGIN_HOST}\"]\n{credential}");
        fs::write(&profile, text)?;
        let program = self.program.to_string_lossy().into_owned();
        let profile = profile.to_string_lossy().into_owned();
        let key = format!("BENCH_KEY={KEY}");
        let words = [
            "env",
            &key,
            &program,
            "run",
            "--discard",
            "--profile",
            &profile,
            "--",
        ];
        self.shell(&words)
    }

    /// Returns the words of `atoll run --discard --allow … --`.
    pub(crate) fn atoll(&self, allow: &[&str]) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        let mut words = vec![program, "run".to_owned(), "--discard".to_owned()];
        let allow = allow.iter().flat_map(|host| ["--allow", host]);
        words.extend(allow.chain(["--"]).map(str::to_owned));
        words
    }

    fn shell(&mut self, front: &[&str]) -> Result<Shell> {
        self.shells += 1;
        let errors = self.place.join(format!("errors-{}", self.shells));
        Shell::start(front, &self.workspace, &errors)
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !is_there() {
        if Instant::now() >= until {
            bail!("{what} does not answer");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
