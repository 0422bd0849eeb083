//! Requests a path with the standard library alone: host and port, each.

use std::io::{Read, Write};
use std::net::TcpStream;

fn ask(to: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to)?;
    let host = to.split(':').next().unwrap_or_default();
    write!(stream, "GET /rust HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned())
}

fn main() {
    for to in std::env::args().skip(1) {
        match ask(&to) {
            Ok(text) => print!("{text}"),
            Err(_) => println!("failed"),
        }
    }
}
