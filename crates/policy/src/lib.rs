//! Profiles compiled to rules, and the one pure decision.
