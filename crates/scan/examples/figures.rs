//! Prints the figures of the scanners on the corpus, a line each: `secrets recall 0.99`. With `--misses`
//! it prints what is missed, and what is a false alarm, by its kind.

use std::error::Error;

use atoll_scan::Scanner;
use atoll_scan::corpus::measure;

fn main() -> Result<(), Box<dyn Error>> {
    let tells = std::env::args().any(|word| word == "--misses");
    for scanner in [Scanner::Secrets, Scanner::PersonalData] {
        let measured = measure(scanner)?;
        let name = scanner.name();
        println!("{name} recall {:.4}", measured.figures.recall);
        println!("{name} precision {:.4}", measured.figures.precision);
        if tells {
            for (kind, count) in measured.missed_kinds() {
                println!("  missed: {kind}, {count}");
            }
            for (kind, count) in measured.alarmed_kinds() {
                println!("  false alarm: {kind}, {count}");
            }
        }
    }
    Ok(())
}
