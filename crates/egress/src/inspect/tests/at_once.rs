//! Tests that nothing written is held back.

use std::os::fd::AsFd;

use rustix::net::sockopt::tcp_nodelay;

use super::*;
use crate::dial::{Route, dial};

/// A head is written before its body, in most responses: holding the body back until the head was
/// acknowledged (tcp(7), `TCP_NODELAY`) makes each such response 40 ms later.
#[tokio::test]
async fn connections_set_tcp_nodelay() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let meant = server.local_addr().unwrap();
    let outside = Outside::new(&[], meant.port(), no_trust());
    let (near, far) = crate::tests::pair().await;
    let same = far.as_fd().try_clone_to_owned().unwrap();
    assert!(!tcp_nodelay(&same).unwrap(), "the kernel's default");
    let carried = tokio::spawn(crate::connections::carry_to(
        Arc::clone(&outside.egress),
        far,
        meant,
    ));
    drop(near);
    carried.await.unwrap();
    assert!(tcp_nodelay(&same).unwrap(), "a program's");

    let host = HostPart::Address(meant.ip());
    let place = Route::At(meant.ip());
    let dialled = dial(&outside.egress, &host, meant.port(), place).await;
    let (stream, _) = (dialled.unwrap().stream, server.accept().await.unwrap());
    assert!(tcp_nodelay(&stream).unwrap(), "a server's");
}
