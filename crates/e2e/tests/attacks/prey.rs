//! The targets of attacks, each watched from outside of the sandbox.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use e2e::{Outcome, World, make_fifo, status_field};

use super::harness::Prey;

/// The text that attacks write where they can.
const EVIL: &str = "evil";
/// The text sent by the test itself, after everything that an attack has sent.
const OWN: &[u8] = b"from the test";

/// Returns a number that no other prey of this machine has.
fn unique() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (std::process::id() % 4_000_000) * 1_000 + count % 1_000
}

/// Returns a text that nobody can guess.
fn sesame() -> String {
    let mut bytes = [0; 8];
    let mut random = fs::File::open("/dev/urandom").unwrap();
    random.read_exact(&mut bytes).unwrap();
    format!("sesame-{:x}", u64::from_ne_bytes(bytes))
}

fn write_for_all(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(world: &World) -> Vec<(&'static str, String)> {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    vec![
        ("top", text(world.top().to_path_buf())),
        ("home", text(world.home())),
        ("state", text(world.state())),
        ("config", text(world.config())),
        ("workspace", text(world.workspace())),
        ("shared", text(world.top().join("shared"))),
    ]
}

fn prey(
    world: &World,
    more: impl IntoIterator<Item = (&'static str, String)>,
    taken: impl FnMut(&World, &Outcome) -> bool + 'static,
) -> Prey {
    let mut names = names(world);
    names.extend(more);
    Prey {
        names,
        taken: Box::new(taken),
    }
}

/// Returns a target that counts as taken once the attacking program prints, as it does when it has
/// something that no program should get: the control shows that it does.
pub fn what_it_prints(world: &World) -> Prey {
    prey(world, [], |_, outcome| outcome.out().contains("taken"))
}

/// Returns a target that counts as taken by anything at all on standard output.
pub fn any_output(world: &World) -> Prey {
    prey(world, [], |_, outcome| !outcome.stdout.is_empty())
}

/// Returns a secret in a file, in many of a user's directories; printing it counts.
pub fn secret(world: &World) -> Prey {
    let secret = sesame();
    let home = world.home();
    for path in [
        world.top().join("secret"),
        home.join(".ssh/id_ed25519"),
        home.join(".aws/credentials"),
        home.join(".netrc"),
        world.config().join("atoll/secret"),
        world.state().join("atoll/secret"),
    ] {
        write_for_all(&path, &secret, 0o644);
    }
    // One that the program had in its sights before it was started.
    std::os::unix::fs::symlink(world.top().join("secret"), world.path("link")).unwrap();
    let path = world.top().join("secret").to_str().unwrap().to_owned();
    let text = secret.clone();
    prey(
        world,
        [("secret", path), ("text", text)],
        move |_, outcome| outcome.out().contains(&secret) || outcome.err().contains(&secret),
    )
}

/// Returns a file outside that everyone may write; any change of it counts.
pub fn canary(world: &World) -> Prey {
    canary_at(world, world.top().join("canary"))
}

/// Returns a [`canary`] in a directory that is shown.
pub fn shared_canary(world: &World) -> Prey {
    canary_at(world, world.top().join("shared/canary"))
}

/// Returns a [`canary`] in the workspace.
pub fn workspace_canary(world: &World) -> Prey {
    canary_at(world, world.path("canary"))
}

/// Returns a [`canary`] that is a git hook of the workspace.
pub fn hook(world: &World) -> Prey {
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    canary_at(world, world.path(".git/hooks/pre-commit"))
}

/// Returns a [`canary`] that is a profile of the user's own.
pub fn own_profile(world: &World) -> Prey {
    canary_at(world, world.config().join("atoll/profiles/another.toml"))
}

fn canary_at(world: &World, path: PathBuf) -> Prey {
    // A comment wherever it stands.
    write_for_all(&path, "# untouched\n", 0o666);
    let directory = path.parent().unwrap().to_path_buf();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let facts = |path: &Path| -> Option<(Vec<u8>, u32, std::time::SystemTime)> {
        let facts = path.symlink_metadata().ok()?;
        let content = fs::read(path).ok()?;
        Some((content, facts.permissions().mode(), facts.modified().ok()?))
    };
    let beside = |directory: &Path| fs::read_dir(directory).map_or(0, Iterator::count);
    let before = (facts(&path), beside(&directory));
    let name = path.to_str().unwrap().to_owned();
    prey(world, [("canary", name)], move |_, _| {
        (facts(&path), beside(&directory)) != before
    })
}

/// Returns whether somebody has connected: a client is in the queue from then on.
fn has_visitors(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

/// Returns whether somebody has sent a datagram: it is in the queue from then on.
fn has_letters(socket: &UnixDatagram) -> bool {
    socket.set_nonblocking(true).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

fn unix_listener(world: &World, path: PathBuf) -> Prey {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let name = path.to_str().unwrap().to_owned();
    prey(world, [("socket", name)], move |_, _| {
        has_visitors(&listener)
    })
}

/// Returns a listener of the host in a directory that is shown.
pub fn shared_listener(world: &World) -> Prey {
    unix_listener(world, world.top().join("shared/listening"))
}

/// Returns a listener of the host in the workspace.
pub fn workspace_listener(world: &World) -> Prey {
    unix_listener(world, world.path("listening"))
}

/// Returns a listener of the host in the home, as agents for keys, buses and daemons have theirs.
pub fn home_listener(world: &World) -> Prey {
    unix_listener(world, world.home().join(".run/listening"))
}

/// Returns a listener for datagrams in a directory that is shown.
pub fn shared_datagrams(world: &World) -> Prey {
    let path = world.top().join("shared/listening");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let socket = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let name = path.to_str().unwrap().to_owned();
    prey(world, [("socket", name)], move |_, _| has_letters(&socket))
}

/// Returns an abstract listener of the host.
pub fn abstract_listener(world: &World) -> Prey {
    let name = format!("atoll-attacks-{}", unique());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    prey(world, [("socket", format!("@{name}"))], move |_, _| {
        has_visitors(&listener)
    })
}

/// Returns an abstract listener for datagrams.
pub fn abstract_datagrams(world: &World) -> Prey {
    let name = format!("atoll-attacks-{}", unique());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    prey(world, [("socket", format!("@{name}"))], move |_, _| {
        has_letters(&socket)
    })
}

fn tcp(world: &World, address: &str) -> Prey {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    prey(world, [("port", port)], move |_, _| {
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_, first) = listener.accept().unwrap();
        first != own.local_addr().unwrap()
    })
}

/// Returns a listener on the host's loopback.
pub fn loopback(world: &World) -> Prey {
    tcp(world, "127.0.0.1:0")
}

/// Returns a listener on the host's loopback by IPv6.
pub fn loopback_six(world: &World) -> Prey {
    tcp(world, "[::1]:0")
}

/// Returns a listener for datagrams on the host's loopback.
pub fn loopback_datagrams(world: &World) -> Prey {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    prey(world, [("port", port)], move |_, _| {
        socket.send_to(OWN, socket.local_addr().unwrap()).unwrap();
        let mut first = [0; 64];
        let length = socket.recv(&mut first).unwrap();
        first[..length] != *OWN
    })
}

/// Returns a named pipe in a directory that is shown: data written to it or read from it counts.
pub fn shared_pipe(world: &World) -> Prey {
    let path = world.top().join("shared/pipe");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    make_fifo(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // Held open at both ends, so that nobody waits.
    let mut end = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let secret = sesame();
    end.write_all(format!("{secret}\n").as_bytes()).unwrap();
    let name = path.to_str().unwrap().to_owned();
    prey(world, [("pipe", name)], move |_, outcome| {
        end.write_all(b"end\n").unwrap();
        let mut seen = [0; 256];
        let count = end.read(&mut seen).unwrap();
        String::from_utf8_lossy(&seen[..count]).contains(EVIL) || outcome.out().contains(&secret)
    })
}

/// A process that ends with its owner.
struct Victim(Child);

impl Victim {
    /// Returns whether it still echoes its input: it does not while a signal is pending.
    fn answers(&mut self) -> bool {
        let said = self.0.stdin.as_mut().unwrap().write_all(b"x");
        let heard = self.0.stdout.as_mut().unwrap().read(&mut [0; 1]);
        said.is_ok() && heard.is_ok_and(|count| count == 1)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a process of the host, of the same user. Its end counts, a change of its priority,
/// limits or processors, and any of its data.
pub fn victim(world: &World) -> Prey {
    let secret = sesame();
    let child = Command::new("cat")
        .env("SECRET", &secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut victim = Victim(child);
    let standing = move || {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let stat = read("stat")?;
        // The nice value is the 19th field (proc(5)); the name may hold spaces.
        let nice = stat
            .rsplit(')')
            .next()?
            .split_whitespace()
            .nth(16)?
            .to_owned();
        Some((read("limits")?, status_field(pid, "Cpus_allowed")?, nice))
    };
    let is_itself =
        || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cat\n");
    while !is_itself() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = standing();
    prey(world, [("victim", pid.to_string())], move |_, outcome| {
        let said = outcome.out();
        !victim.answers()
            || standing() != before
            || said.contains("taken")
            || said.contains(&secret)
    })
}

/// Kernel objects that stay until somebody removes them.
struct Kept {
    attack: PathBuf,
    remove: [String; 2],
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = Command::new(&self.attack)
            .args(&self.remove)
            .stderr(Stdio::null())
            .status();
    }
}

fn kept(world: &World, kind: &str, key: &str, make: &[&str], look: &str, untouched: &str) -> Prey {
    let attack = world.path("attack");
    let run = move |world: &World, arguments: &[&str]| {
        world
            .host(world.path("attack"))
            .args(arguments.iter().copied())
            .run()
    };
    let mut arguments = vec![make[0], key];
    arguments.extend(&make[1..]);
    assert_eq!(run(world, &arguments).code(), 0, "{kind} cannot be made");
    let kept = Kept {
        attack,
        remove: [format!("{kind}-remove"), key.to_owned()],
    };
    let (look, untouched) = (look.to_owned(), untouched.to_owned());
    prey(world, [("key", key.to_owned())], move |world, outcome| {
        let seen = run(world, &[look.as_str(), kept.remove[1].as_str()]).out();
        seen != untouched || outcome.out().contains("taken")
    })
}

/// Returns shared memory of the host's, System V.
pub fn shared_memory(world: &World) -> Prey {
    let key = unique().to_string();
    kept(
        world,
        "shm",
        &key,
        &["shm-make", "untouched"],
        "shm-read",
        "taken untouched\n",
    )
}

/// Returns a queue of the host's, System V.
pub fn queue(world: &World) -> Prey {
    kept(
        world,
        "queue",
        &unique().to_string(),
        &["queue-make"],
        "queue-receive",
        "",
    )
}

/// Returns a semaphore of the host's, System V.
pub fn semaphore(world: &World) -> Prey {
    let key = unique().to_string();
    kept(
        world,
        "semaphore",
        &key,
        &["semaphore-make"],
        "semaphore-read",
        "taken 0\n",
    )
}

/// Returns a queue of the host's, POSIX.
pub fn posix_queue(world: &World) -> Prey {
    let name = format!("/atoll-attacks-{}", unique());
    kept(world, "mq", &name, &["mq-make"], "mq-receive", "")
}

/// Returns a file in the host's shared memory, POSIX.
pub fn posix_memory(world: &World) -> Prey {
    struct Removed(PathBuf);
    impl Drop for Removed {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }
    let path = PathBuf::from(format!("/dev/shm/atoll-attacks-{}", unique()));
    write_for_all_in_place(&path);
    let removed = Removed(path.clone());
    let name = path.to_str().unwrap().to_owned();
    prey(world, [("canary", name)], move |_, _| {
        fs::read(&removed.0).ok().as_deref() != Some(b"untouched\n")
    })
}

fn write_for_all_in_place(path: &Path) {
    fs::write(path, "untouched\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
}

/// Returns a file of the workspace that must not take its owner's rights.
pub fn set_id(world: &World) -> Prey {
    write_for_all(&world.path("file"), "text\n", 0o755);
    prey(world, [], |world, _| {
        let facts = fs::metadata(world.path("file")).unwrap();
        facts.permissions().mode() & 0o6000 != 0
    })
}
