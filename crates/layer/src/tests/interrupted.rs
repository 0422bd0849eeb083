pub fn child(_role: &str, _root: &std::path::Path) {}
