//! Sandboxes that shadow runs happen in: nothing leaves them but by a layer.

use atoll_model::{Access, Boundary, Keep, Mode, WorkspaceMode};

use super::Sandbox;
use crate::failure::{Failure, Kind};

/// Refuses a sandbox through whose boundary an effect could pass: a shadow run in it would be no copy.
///
/// # Errors
/// With the first such way.
pub fn refuse_unheld(sandbox: &Sandbox) -> Result<(), Failure> {
    let Some(way) = way_out(sandbox.basis.boundary()) else {
        return Ok(());
    };
    let profile = &sandbox.basis.boundary().profile;
    Err(
        Failure::new("nothing ran: its sandbox cannot hold a shadow run")
            .because(way)
            .advise(format!(
                "give the tool a profile without that, in place of {profile}"
            ))
            .of_kind(Kind::Denied),
    )
}

fn way_out(boundary: &Boundary) -> Option<&'static str> {
    let network = &boundary.network;
    let is_kept = |access: Access| match access {
        Access::Layer(layering) => layering.keep == Keep::Profile,
        Access::ReadOnly => false,
    };
    let is_reached = !network.is_empty()
        || !network.publish.is_empty()
        || !network.host_ports.is_empty()
        || !network.ssh.is_empty();
    if is_reached {
        return Some("it has a network, through which an effect would pass");
    }
    if boundary.mode != Mode::Full || boundary.workspace == WorkspaceMode::Live {
        return Some("there can be no layer over the workspace");
    }
    if !boundary.volumes.is_empty() || boundary.views.iter().any(|view| is_kept(view.access)) {
        return Some("its profile keeps files for later runs");
    }
    None
}
