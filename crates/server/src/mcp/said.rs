//! Words of upstreams during calls, as clients hear them: progress if the call asked for it, messages
//! for logs if the session did.

#![expect(deprecated, reason = "clients of 2025-11-25 and before have logs")]

use std::sync::{Mutex, PoisonError};

use atoll_tools::Said;
use rmcp::RoleServer;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RequestContext};

/// The mildest level of messages that a session wants; none if `None`.
#[derive(Default)]
pub(super) struct Level(Mutex<Option<LoggingLevel>>);

impl Level {
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    fn get(&self) -> Option<LoggingLevel> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listener of one call.
pub(super) struct Listener {
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
    level: Option<LoggingLevel>,
}

impl Listener {
    pub(super) fn of(context: &RequestContext<RoleServer>, level: &Level) -> Self {
        Self {
            peer: context.peer.clone(),
            progress: context.meta.get_progress_token(),
            level: level.get(),
        }
    }

    /// Returns whether it wants anything.
    pub(super) fn hears(&self) -> bool {
        self.progress.is_some() || self.level.is_some()
    }

    /// Passes on what is said; a client that is gone does not hear it.
    pub(super) async fn pass_on(&self, said: Said) {
        match said {
            Said::Progress {
                progress,
                total,
                message,
            } => {
                if let Some(token) = self.progress.clone() {
                    let mut param = ProgressNotificationParam::new(token, progress);
                    (param.total, param.message) = (total, message);
                    let _ = self.peer.notify_progress(param).await;
                }
            }
            Said::Log {
                level,
                logger,
                data,
            } => {
                let level = serde_json::from_value::<LoggingLevel>(level.into());
                if let (Some(mildest), Ok(level)) = (self.level, level)
                    && severity(level) >= severity(mildest)
                {
                    let mut param = LoggingMessageNotificationParam::new(level, data);
                    param.logger = logger;
                    let _ = self.peer.notify_logging_message(param).await;
                }
            }
        }
    }
}

fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
