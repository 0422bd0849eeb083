//! Connections of programs: each leads to DNS, the proxy, the sandbox API, or a tunnel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use atoll_sys::funnel::original_destination;
use tokio::net::TcpStream;

use crate::program_stream::{ProgramStream, reset};
use crate::{Egress, destination, dns, proxy, sandbox_api, tunnel};

/// Carries one connection from its arrival to its end.
pub(crate) async fn carry(egress: Arc<Egress>, program: TcpStream) {
    match original(&program) {
        Ok(meant) => carry_to(egress, program, meant).await,
        // Made to the funnel's port itself: it was meant for nobody.
        Err(_) => reset(program),
    }
}

/// Carries one connection whose destination is known.
pub(crate) async fn carry_to(egress: Arc<Egress>, program: TcpStream, meant: SocketAddr) {
    // What follows a first small piece is not held back until that was acknowledged, for which a
    // program's side may take 40 ms (tcp(7), `TCP_NODELAY`).
    let _ = program.set_nodelay(true);
    let meant = SocketAddr::new(meant.ip().to_canonical(), meant.port());
    if dns::is_name_server(meant) {
        return dns::serve_over_tcp(&egress, program).await;
    }
    match destination::of_address(&egress, meant) {
        Ok(to) if to.is_proxy() => proxy::serve(&egress, program).await,
        Ok(to) if to.is_sandbox_api() => {
            sandbox_api::serve(&egress, ProgramStream::new(program)).await;
        }
        Ok(to) => tunnel::judge(&egress, ProgramStream::new(program), to).await,
        Err((to, why)) => {
            tunnel::refuse(&egress, ProgramStream::new(program), to.flow(), why).await
        }
    }
}

fn original(program: &TcpStream) -> io::Result<SocketAddr> {
    let meant = original_destination(program.as_fd())?;
    if meant == program.local_addr()? {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(meant)
}
