use crate::memory::nameless;

fn check(line: &str, expected: Option<(u64, u64)>) {
    assert_eq!(nameless(line), expected, "{line}");
}

#[test]
fn mappings_of_memory_without_a_name_are_told_from_others() {
    let range = "7f33ae128000-7f33af528000 r--s 00002000 00:01 336993     ";
    let size = 0x140_0000 + 0x2000;
    for name in [
        "/memfd:y (deleted)",
        "/memfd: with spaces (deleted)",
        "/dev/zero (deleted)",
        "[anon_shmem:harmless]",
    ] {
        check(&format!("{range} {name}"), Some((336_993, size)));
    }
    for name in [
        "",
        "/usr/lib/libc.so.6",
        "/dev/shm/file (deleted)",
        "[heap]",
    ] {
        check(&format!("{range} {name}"), None);
    }
    // What the kernel would not write is no reason to fail.
    check("7f33ae128000 r--s /memfd:y", None);
    check("2-1 r--s 0 00:01 5 /memfd:y", None);
    check("", None);
}
