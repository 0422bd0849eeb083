//! Changes of lists, as clients are told of them.

use std::pin::Pin;
use std::time::Duration;

use atoll_tools::ChangedLists;
use rmcp::RoleServer;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, SubscriptionSink};
use tokio::sync::mpsc::UnboundedReceiver;

/// The time between two looks whether a client has gone.
const LOOK: Duration = Duration::from_secs(10);

/// The work of telling of changed lists.
pub(crate) type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A client that is told.
pub(super) trait Told {
    /// Tells; returns whether it is there.
    fn tell(&self, changed: ChangedLists) -> impl Future<Output = bool> + Send;

    fn is_gone(&self) -> bool;
}

/// The client of a session.
impl Told for Peer<RoleServer> {
    async fn tell(&self, changed: ChangedLists) -> bool {
        let tools = !changed.tools || self.notify_tool_list_changed().await.is_ok();
        let prompts = !changed.prompts || self.notify_prompt_list_changed().await.is_ok();
        let resources = !changed.resources || self.notify_resource_list_changed().await.is_ok();
        tools && prompts && resources
    }

    fn is_gone(&self) -> bool {
        self.is_transport_closed()
    }
}

/// The client of a subscription, who is told of what it asked for alone.
impl Told for SubscriptionSink {
    async fn tell(&self, changed: ChangedLists) -> bool {
        if changed.tools {
            let _ = self.notify_tool_list_changed().await;
        }
        if changed.prompts {
            let _ = self.notify_prompt_list_changed().await;
        }
        if changed.resources {
            let _ = self.notify_resource_list_changed().await;
        }
        true
    }

    fn is_gone(&self) -> bool {
        false
    }
}

/// Returns what a client can be told of.
pub(super) fn accepted() -> SubscriptionFilter {
    SubscriptionFilter::builder()
        .tools_list_changed()
        .prompts_list_changed()
        .resources_list_changed()
        .build()
}

/// Tells of changes, for as long as there is somebody to be told and something to be watched.
pub(super) async fn pass_on(
    mut watch: Watch,
    mut changed: UnboundedReceiver<ChangedLists>,
    to: &impl Told,
) {
    loop {
        tokio::select! {
            biased;
            Some(changed) = changed.recv() => {
                if !to.tell(changed).await {
                    return;
                }
            }
            () = &mut watch => return,
            () = tokio::time::sleep(LOOK) => {
                if to.is_gone() {
                    return;
                }
            }
        }
    }
}
