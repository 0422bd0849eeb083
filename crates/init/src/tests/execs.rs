//! Every order in which the exec server, programs, the kernel and the first process can act, by a
//! model checker: each exec has one end.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use atoll_frame::ExecId;
use atoll_sys::process::Change;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::execs::{Child, Execs, Heard, News, Sources};

const KILLED: Change = Change::Signalled(9);

/// The kernel's table of processes, and the messages of the exec server on their way.
#[derive(Default)]
struct Kernel {
    /// Children of the first process; those that have ended with their ends.
    children: BTreeMap<u32, Option<Change>>,
    messages: VecDeque<(ExecId, u32)>,
}

#[derive(Clone)]
struct Model(Arc<Mutex<Kernel>>);

impl Model {
    /// Begins with these children, which wait to become execs.
    fn new(waiting: &[u32]) -> Self {
        let kernel = Kernel {
            children: waiting.iter().map(|pid| (*pid, None)).collect(),
            ..Kernel::default()
        };
        Self(Arc::new(Mutex::new(kernel)))
    }

    fn is_there(&self, pid: u32) -> bool {
        self.0.lock().unwrap().children.get(&pid) == Some(&None)
    }

    fn say(&self, exec: u32, pid: u32) {
        let mut kernel = self.0.lock().unwrap();
        kernel.messages.push_back((ExecId(exec), pid));
    }

    fn end(&self, pid: u32, change: Change) {
        let mut kernel = self.0.lock().unwrap();
        if let Some(child) = kernel.children.get_mut(&pid) {
            child.get_or_insert(change);
        }
    }
}

impl Sources for Model {
    fn changed(&mut self) -> io::Result<Option<u32>> {
        let kernel = self.0.lock().unwrap();
        let mut ended = kernel.children.iter().filter(|(_, end)| end.is_some());
        Ok(ended.next().map(|(pid, _)| *pid))
    }

    fn take(&mut self, pid: u32) -> io::Result<Child> {
        let mut kernel = self.0.lock().unwrap();
        let Some(end) = kernel.children.get(&pid).copied() else {
            return Ok(Child::Gone);
        };
        Ok(end.map_or(Child::Running, |change| {
            kernel.children.remove(&pid);
            Child::Changed(change)
        }))
    }

    fn heard(&mut self) -> io::Result<Heard> {
        let message = self.0.lock().unwrap().messages.pop_front();
        Ok(message.map_or(Heard::Nothing, |(id, pid)| Heard::Exec(id, pid)))
    }
}

/// One look at all that is there.
type Attend = fn(&mut Execs, &mut Model, &mut Vec<News>);

fn attend(execs: &mut Execs, sources: &mut Model, news: &mut Vec<News>) {
    while !execs.attend(sources, news).unwrap() {}
}

/// The server alone, or the kernel alone.
struct Half<'a> {
    of: &'a mut Model,
    is_server: bool,
}

impl Sources for Half<'_> {
    fn changed(&mut self) -> io::Result<Option<u32>> {
        match self.is_server {
            true => Ok(None),
            false => self.of.changed(),
        }
    }

    fn take(&mut self, pid: u32) -> io::Result<Child> {
        self.of.take(pid)
    }

    fn heard(&mut self) -> io::Result<Heard> {
        match self.is_server {
            true => self.of.heard(),
            false => Ok(Heard::Nothing),
        }
    }
}

/// Hears the server, then reaps whatever has ended by now.
fn reap_unheard(execs: &mut Execs, of: &mut Model, news: &mut Vec<News>) {
    for is_server in [true, false] {
        let mut half = Half { of, is_server };
        while !execs.attend(&mut half, news).unwrap() {}
    }
}

/// Runs a model in every order with few changes of who acts (CHESS): all orders take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Has the first process look now and then while the others act, and once they are done.
fn watch(model: &Model, others: impl FnOnce(), looks: u32, attend: Attend) -> Vec<(u32, Change)> {
    let (mut execs, mut news) = (Execs::default(), Vec::new());
    let mut sources = model.clone();
    for _ in 0..looks {
        attend(&mut execs, &mut sources, &mut news);
    }
    others();
    attend(&mut execs, &mut sources, &mut news);
    let ends = news.into_iter().filter_map(|news| match news {
        News::Changed(exec, change) => Some((exec.0, change)),
        News::Started | News::ServerEnded => None,
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by_key(|(exec, _)| *exec);
    ends
}

#[test]
fn each_exec_has_one_end_in_every_order() {
    check(|| {
        let model = Model::new(&[7, 8]);
        let server = model.clone();
        let server = thread::spawn(move || {
            let programs = [(1, 7), (2, 8)].map(|(exec, pid)| {
                server.say(exec, pid);
                let program = server.clone();
                let status = Change::Exited(exec as u8);
                thread::spawn(move || program.end(pid, status))
            });
            for program in programs {
                program.join().unwrap();
            }
        });
        let ends = watch(&model, || server.join().unwrap(), 1, attend);
        assert_eq!(ends, [(1, Change::Exited(1)), (2, Change::Exited(2))]);
    });
}

#[test]
fn exec_whose_process_was_killed_has_one_end() {
    check(|| {
        let model = Model::new(&[7, 8]);
        let (server, killer) = (model.clone(), model.clone());
        let killer = thread::spawn(move || killer.end(7, KILLED));
        let server = thread::spawn(move || {
            let pid = if server.is_there(7) { 7 } else { 8 };
            server.say(1, pid);
            server.end(pid, Change::Exited(0));
        });
        let others = || {
            killer.join().unwrap();
            server.join().unwrap();
        };
        let ends = watch(&model, others, 1, attend);
        let [(1, Change::Exited(0) | KILLED)] = ends.as_slice() else {
            panic!("{ends:?}");
        };
    });
}

/// The order that lost ends: the checker finds it.
#[test]
#[should_panic(expected = "an end is lost")]
fn exec_reaped_before_it_is_heard_has_no_end() {
    check(|| {
        let model = Model::new(&[7]);
        let server = model.clone();
        let server = thread::spawn(move || {
            server.say(1, 7);
            server.end(7, Change::Exited(0));
        });
        let ends = watch(&model, || server.join().unwrap(), 1, reap_unheard);
        assert_eq!(ends, [(1, Change::Exited(0))], "an end is lost");
    });
}
