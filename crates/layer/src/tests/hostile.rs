pub fn no_space(_root: &std::path::Path) {}
