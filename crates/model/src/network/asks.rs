//! Rules that ask a person first.

use std::iter::once;
use std::net::IpAddr;

use super::block::within;
use super::rules::blocks;
use super::{Conditions, Destination, HostPart, Network, NetworkRule, Request, Unreachable};

impl Network {
    /// Returns whether a rule or credential for a host and port has a condition on methods.
    #[must_use]
    pub fn is_about_methods(&self, host: &HostPart, port: u16) -> bool {
        self.is_about(host, port, |requests| !requests.methods.is_empty())
    }

    /// Returns whether a rule or credential for a host and port has a condition on paths.
    #[must_use]
    pub fn is_about_paths(&self, host: &HostPart, port: u16) -> bool {
        self.is_about(host, port, |requests| {
            !requests.paths.is_empty() || requests.packages.is_some()
        })
    }

    fn is_about(&self, host: &HostPart, port: u16, is_it: fn(&Conditions) -> bool) -> bool {
        let mut rules = self.allow.iter().chain(&self.deny);
        let mut bindings = self.credentials.iter();
        let leads = |to: &Destination| to.leads_to(host, port);
        // A person is told of the method and the path.
        self.asks_about(host, port).next().is_some()
            || rules.any(|rule| leads(&rule.to) && is_it(&rule.requests))
            || bindings.any(|one| one.to.iter().any(leads) && is_it(&one.requests))
    }

    /// Returns the rule that asks a person before an allowed connection is made, whose bytes are
    /// tunnelled.
    #[must_use]
    pub fn asks_of_connection(&self, host: &HostPart, port: u16) -> Option<&NetworkRule> {
        // What cannot be seen can be any request.
        self.asks_about(host, port).next()
    }

    /// Returns the rules that ask about a host and port; of an address also those about the
    /// addresses it may lead to.
    pub(super) fn asks_about(
        &self,
        host: &HostPart,
        port: u16,
    ) -> impl Iterator<Item = &NetworkRule> {
        let rules = self.ask.iter();
        rules.filter(move |rule| {
            let mut all = host.standing();
            all.any(|host| rule.to.leads_to(&host, port))
        })
    }

    /// Returns the rule that asks a person before an allowed request is sent.
    #[must_use]
    pub fn asks_of_request(&self, request: &Request<'_>) -> Option<&NetworkRule> {
        let mut rules = self.asks_about(request.host, request.port);
        rules.find(|rule| rule.requests.may_hold(request))
    }

    /// Returns the rule that asks about an address to which a name resolves, which no person has
    /// approved.
    fn asks_of_address(&self, address: IpAddr, port: u16) -> Option<&NetworkRule> {
        let mut all = once(address).chain(within(address));
        all.find_map(|address| blocks(&self.ask, address, port).next())
    }

    /// Decides on dialling an address to which a name resolves: as [`Self::address`], and no rule
    /// asks about that address.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn address_of_name(
        &self,
        address: IpAddr,
        port: u16,
        request: Option<&Request<'_>>,
    ) -> Result<(), Unreachable<'_>> {
        match self.asks_of_address(address, port) {
            Some(rule) => Err(Unreachable::Asked(rule)),
            None => self.address(address, port, request),
        }
    }
}
