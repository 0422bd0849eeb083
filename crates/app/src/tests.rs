use crate::LAUNCHER;

/// A constant is copied to wherever it is named, and the launcher is large.
#[test]
fn the_program_holds_its_launcher_once() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let middle = LAUNCHER.len() / 2;
    let part = &LAUNCHER[middle..middle + 4_096];
    let times = |within: &[u8]| within.windows(part.len()).filter(|at| *at == part).count();
    assert_eq!((times(LAUNCHER), times(&program)), (1, 1));
}
