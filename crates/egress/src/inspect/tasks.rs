//! Background tasks of requests, ended all at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

/// A set of tasks that can be ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task until it ends, or all are ended.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Ends all tasks, and waits until they have ended.
    pub(crate) async fn end(&self) {
        let mut tasks = std::mem::take(&mut *self.lock());
        tasks.shutdown().await;
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, work: F) {
        self.spawn(async move { drop(work.await) });
    }
}
