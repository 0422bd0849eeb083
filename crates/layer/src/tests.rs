mod diffs;
mod hostile;
mod interrupted;
mod kinds;
mod modes;
mod names;
mod random;
mod support;
