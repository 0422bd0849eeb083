//! `atoll serve`: begins a server, and its keys.

mod keys;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_data::retention::Rules;
use atoll_engine::at_rest::AtRest;
use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::missing_ids;
use atoll_engine::run::refuse_nesting;
use atoll_engine::sandboxes::Engine;
use atoll_launcher::LAUNCHER;
use atoll_server::worker::{self, Worker};
use atoll_server::{Configuration, Identity, NetworkWord};
use atoll_store::{
    FIRST_TENANT, KeyRecord, KeyStore as _, NewKey, Role, Scopes, ServedError, ServedStore,
    ServerCertificate,
};
use atoll_sys::descriptor::inherited;
use atoll_sys::process::signals_as_descriptor;
use atoll_tools::ToolSwitches;

use crate::arguments::{ServeAction, ServeArguments};
use crate::output::Output;
use keys::keys;

/// The file of keys and lifecycle_events, in the state directory.
const STORE: &str = "serve.sqlite";
/// The configuration file.
const CONFIGURATION: &str = "serve.toml";
/// The name of the first key.
const FIRST_KEY: &str = "first";

/// The first descriptor of a service manager's.
const FIRST_GIVEN: i32 = 3;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// Carries out `atoll serve`.
///
/// # Errors
/// When the server cannot begin or go on, or the request about keys is refused.
pub fn serve(arguments: &ServeArguments, output: &Output) -> Result<u8, Failure> {
    // Before anything else is opened, which would have its number if it is not there.
    let given = given_socket();
    let places = Places::read()?;
    if let Some(action) = &arguments.action {
        return beside(action, &places, output);
    }
    let configuration = configuration(&places, arguments)?;
    worker::check_key_files(&configuration.issuers)?;
    Rules::read(&places)?;
    if arguments.check {
        return checked(&places, &configuration, output);
    }
    refuse_nesting()?;
    // Before anything starts a thread, which would have its own.
    let stop = signals_as_descriptor(&[SIGHUP, SIGINT, SIGTERM]);
    let stop = stop.doing("signals cannot be taken over")?;
    let mut store = store(&places)?;
    store.take().map_err(|error| taken(&error))?;
    let engine = Engine::open(LAUNCHER)?;
    let tools = ToolSwitches::new(&places.config, &places.state).registry();
    crate::tools::warn_of(tools.problems(), output);
    let listener = listener(&configuration, given)?;
    let address = listener.local_addr().doing("the address is not known")?;
    let keys = store.keys().map_err(|error| unusable(&error))?;
    let first = match keys.is_empty() {
        false => None,
        true => {
            let first = NewKey {
                tenant: FIRST_TENANT,
                name: FIRST_KEY,
                role: Role::Administrator,
                scopes: Scopes::All,
                expires_s: None,
            };
            Some(made(&store, &first)?.0)
        }
    };
    let identity = identity(&places, &configuration)?;
    let (identity, authority) = identity.unzip();
    let (network, port) = (configuration.network(), address.port());
    let domain = configuration.tls.as_ref().map(|tls| tls.domain.clone());
    let worker = Worker::new(engine, store, configuration, identity, port);
    let can_make = worker.check();
    can_make.doing("no sandbox can be made as serve.toml says")?;
    let place = Place {
        address,
        domain: domain.as_deref(),
        authority: authority.flatten(),
    };
    line(output, &greeting(&place, network, first.as_deref()));
    tell_service_manager();
    worker::serve(&worker, &listener, stop).doing("the server cannot go on")?;
    Ok(0)
}

/// Says whether serve.toml is right, and how the files of sandboxes lie.
fn checked(places: &Places, configuration: &Configuration, output: &Output) -> Result<u8, Failure> {
    if configuration
        .tls
        .as_ref()
        .is_some_and(|tls| tls.certificate.is_some())
    {
        identity(places, configuration)?;
    }
    line(
        output,
        &format!(
            "right: {}://{}, network {}",
            if configuration.tls.is_some() {
                "https"
            } else {
                "http"
            },
            configuration.listen,
            configuration.network().name()
        ),
    );
    let at_rest = AtRest::of(&places.state);
    let place = places.state.display();
    line(output, &format!("sandboxes' files, in {place}: {at_rest}"));
    if let Some(missing) = missing_ids() {
        line(output, &format!("users in templates: {missing}"));
    }
    Ok(0)
}

/// Carries out an action on the store, also beside a server that runs.
fn beside(action: &ServeAction, places: &Places, output: &Output) -> Result<u8, Failure> {
    match action {
        ServeAction::Keys(arguments) => return keys(places, arguments, output),
        ServeAction::Backup(arguments) => {
            let file = arguments.file.display();
            let done = store(places)?.back_up(&arguments.file);
            done.doing(&format!("{file} is not written"))?;
            line(output, &format!("written: {file}"));
        }
        ServeAction::Restore(arguments) => {
            let done = store(places)?.restore(&arguments.file);
            done.doing(&format!("{} is not restored", arguments.file.display()))?;
            line(
                output,
                "restored: its keys are good from now on, and no others",
            );
        }
    }
    Ok(0)
}

/// The place of a server, as clients find it.
struct Place<'a> {
    address: std::net::SocketAddr,
    /// Its name, if it speaks TLS.
    domain: Option<&'a str>,
    /// The file of the authority that clients are to trust, if it is the server's own.
    authority: Option<PathBuf>,
}

/// Reads or makes what the server speaks TLS with, and the file of its authority, if it is its own.
fn identity(
    places: &Places,
    configuration: &Configuration,
) -> Result<Option<(Identity, Option<PathBuf>)>, Failure> {
    let Some(tls) = &configuration.tls else {
        return Ok(None);
    };
    if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
        let read = |path: &Path| {
            fs::read_to_string(path).doing(&format!("{} cannot be read", path.display()))
        };
        let identity = Identity {
            certificates: read(certificate)?,
            key: read(key)?,
        };
        identity
            .check()
            .doing("tls.certificate and tls.key do not go together")?;
        return Ok(Some((identity, None)));
    }
    let state = places.open_state()?;
    let own = Some(configuration.listen.ip()).filter(|address| !address.is_unspecified());
    let addresses: Vec<_> = own.into_iter().collect();
    let made = ServerCertificate::make(&state, &tls.domain, &addresses, SystemTime::now());
    let made = made.doing("no certificate can be made for the server")?;
    let identity = Identity {
        certificates: made.certificate.clone(),
        key: made.key.clone(),
    };
    Ok(Some((identity, Some(made.authority))))
}

/// Tells where the server is, and what a shell needs for the SDKs.
fn greeting(place: &Place<'_>, network: NetworkWord, key: Option<&str>) -> String {
    let port = place.address.port();
    let (url, domain) = match place.domain {
        // Few programs resolve such a name, and the certificate is for the address too.
        Some(domain) if domain.ends_with(".localhost") && !place.address.ip().is_unspecified() => {
            (format!("https://{}", place.address), domain)
        }
        Some(domain) => (format!("https://{domain}:{port}"), domain),
        // So that get_host(8000) is a name of this machine, and none of E2B's.
        None => (format!("http://{}", place.address), "localhost"),
    };
    let mut text = format!(
        "Serving at {url}, sandboxes with the network \"{}\".\n",
        network.name()
    );
    text += "Paste this into the shell of whatever uses E2B's SDK, or atoll sandbox:\n";
    text += &format!("  export E2B_API_URL={url}\n");
    text += &format!("  export E2B_SANDBOX_URL={url}\n");
    text += &format!("  export E2B_VOLUME_API_URL={url}\n");
    text += &format!("  export E2B_DOMAIN={domain}:{port}\n");
    text += &format!("  export ATOLL_URL={url}\n");
    if let Some(authority) = &place.authority {
        let authority = authority.display();
        text += &format!("  export SSL_CERT_FILE={authority} NODE_EXTRA_CA_CERTS={authority}\n");
    }
    match key {
        Some(key) => {
            text += &format!("  export E2B_API_KEY={key}\n  export ATOLL_API_KEY={key}\n");
            text += "The key is shown this once; atoll serve keys create makes others.\n";
        }
        None => {
            text += "E2B_API_KEY and ATOLL_API_KEY take a key of this server: one of yours, or one \
                     that atoll serve keys create makes.\n";
        }
    }
    text += "Ctrl-C ends the server and its sandboxes.";
    text
}

/// Takes the socket of a service manager, if there is one (sd_listen_fds(3)).
fn given_socket() -> Option<OwnedFd> {
    let of_us = std::env::var("LISTEN_PID").ok()? == std::process::id().to_string();
    let is_one = std::env::var("LISTEN_FDS").ok()? == "1";
    // A number at which nothing is open has no link there.
    let is_open = std::fs::read_link(format!("/proc/self/fd/{FIRST_GIVEN}")).is_ok();
    (of_us && is_one && is_open).then(|| inherited(FIRST_GIVEN).ok())?
}

/// Listens at the address, or takes the socket that a service manager listens at already
/// which must be on the loopback too.
fn listener(configuration: &Configuration, given: Option<OwnedFd>) -> Result<TcpListener, Failure> {
    let Some(given) = given else {
        return TcpListener::bind(configuration.listen).map_err(|error| {
            Failure::new(format!("nothing can listen at {}", configuration.listen))
                .because(error)
                .advise("atoll serve --listen 127.0.0.1:3001 takes another port")
        });
    };
    let listener = TcpListener::from(given);
    let address = listener
        .local_addr()
        .doing("the socket of the service manager has no address")?;
    let given = Configuration {
        listen: address,
        ..configuration.clone()
    };
    given
        .check()
        .map_err(|error| Failure::new("the server cannot begin so").because(error))?;
    Ok(listener)
}

/// Tells a service manager that requests are taken from now on (sd_notify(3)).
fn tell_service_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let told = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(b"READY=1", &address)
    });
    if let Err(error) = told {
        eprintln!("atoll serve: the service manager cannot be told: {error}");
    }
}

fn configuration(places: &Places, arguments: &ServeArguments) -> Result<Configuration, Failure> {
    let own = places.config.join(CONFIGURATION);
    let path = arguments.config.as_deref().unwrap_or(&own);
    let mut configuration = match fs::read_to_string(path) {
        Ok(text) => Configuration::parse(&text).map_err(|error| wrong(path, &error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && arguments.config.is_none() => {
            Configuration::default()
        }
        Err(error) => return Err(wrong(path, &error)),
    };
    configuration.listen = arguments.listen.unwrap_or(configuration.listen);
    configuration.network = arguments.network.or(configuration.network);
    configuration
        .check()
        .map_err(|error| Failure::new("the server cannot begin so").because(error))?;
    Ok(configuration)
}

fn line(output: &Output, text: &str) {
    output.result(&format!("{text}\n"));
}

fn wrong(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(format!("{} is invalid", path.display()))
        .because(error)
        .advise("atoll help serve shows what it can hold")
}

fn store(places: &Places) -> Result<ServedStore, Failure> {
    let state = places.open_state()?;
    ServedStore::open(&state.path().join(STORE)).map_err(|error| unusable(&error))
}

/// Opens the store of this state, if there is one.
///
/// # Errors
/// When it cannot be used.
pub(crate) fn existing_store(places: &Places) -> Result<Option<ServedStore>, Failure> {
    let path = places.state.join(STORE);
    let store = path.exists().then(|| ServedStore::open(&path));
    store.transpose().map_err(|error| unusable(&error))
}

/// Returns whether a server runs on this state.
pub(crate) fn is_running(places: &Places) -> bool {
    let store = existing_store(places).unwrap_or_default();
    store.is_some_and(|store| store.is_taken().unwrap_or(false))
}

fn unusable(error: &dyn std::error::Error) -> Failure {
    Failure::new("the server's store cannot be used").because(error)
}

/// Tells that another server has the store: with two, neither knows which sandboxes have ended.
fn taken(error: &ServedError) -> Failure {
    let failure = Failure::new("the server cannot begin").because(error);
    match error {
        ServedError::Taken => {
            failure.advise("end that one, or give this one a state of its own with XDG_STATE_HOME")
        }
        _ => failure,
    }
}

fn made(store: &ServedStore, wanted: &NewKey<'_>) -> Result<(String, KeyRecord), Failure> {
    store.make_key(wanted).map_err(|error| unusable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_indents_only_lines_to_paste() {
        let place = Place {
            address: ([127, 0, 0, 1], 3000).into(),
            domain: None,
            authority: None,
        };
        for (key, keys) in [(None, 0), (Some("e2b_1"), 2)] {
            let text = greeting(&place, NetworkWord::Closed, key);
            let pasted: Vec<&str> = text.lines().filter(|line| line.starts_with(' ')).collect();
            for line in &pasted {
                let (name, value) = line
                    .strip_prefix("  export ")
                    .unwrap()
                    .split_once('=')
                    .unwrap();
                assert!(
                    name.ends_with("_URL") || name.ends_with("_DOMAIN") || name.ends_with("_KEY")
                );
                assert!(value.is_ascii() && !value.contains([' ', '(']), "{line}");
            }
            let of_keys = pasted.iter().filter(|line| line.contains("_API_KEY="));
            assert_eq!(of_keys.count(), keys, "{text}");
            assert!(text.contains("atoll serve keys create"), "{text}");
        }
    }
}
