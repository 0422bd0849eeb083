//! The kinds of things that are removed.

/// The reason for a removal, as counted in the summary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Writing or reading the clipboard.
    Clipboard,
    /// Setting the window's title, or reading it back.
    Title,
    /// A question whose answer the terminal would type in.
    Query,
    /// Changing how keys are reported.
    Keyboard,
    /// A desktop notification.
    Notification,
    /// A link to something other than a web page or a mail address.
    Hyperlink,
    /// Moving, resizing or reporting the window.
    Window,
    /// A mode that is not on the list.
    Mode,
    /// Printing on paper.
    Printer,
    /// A device control string: key definitions, images, settings read back.
    DeviceControl,
    /// An application command: images, passing through a multiplexer.
    ApplicationCommand,
    /// Privacy messages and start-of-string: ignored by most terminals.
    OtherString,
    /// A control character.
    Control,
    /// Longer than a terminal needs.
    Oversize,
    /// Broken off by something that does not belong in it.
    Malformed,
    /// Broken off by the end of the output.
    Unfinished,
    /// Anything else that is not on the list.
    Unknown,
}

impl Removal {
    /// Returns the name under which it is counted.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clipboard => "clipboard",
            Self::Title => "title",
            Self::Query => "query",
            Self::Keyboard => "keyboard",
            Self::Notification => "notification",
            Self::Hyperlink => "hyperlink",
            Self::Window => "window",
            Self::Mode => "mode",
            Self::Printer => "printer",
            Self::DeviceControl => "device-control",
            Self::ApplicationCommand => "application-command",
            Self::OtherString => "other-string",
            Self::Control => "control-character",
            Self::Oversize => "oversize",
            Self::Malformed => "malformed",
            Self::Unfinished => "unfinished",
            Self::Unknown => "unknown",
        }
    }
}

/// The decision on one complete sequence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Written unchanged.
    Pass,
    /// Written with another body, part of which may have been removed.
    Rewrite {
        /// The parameters, or the string.
        body: Vec<u8>,
        /// The kind of the removed part.
        removed: Option<Removal>,
    },
    /// Not written.
    Remove(Removal),
}

impl Judgement {
    /// Passes a sequence when `granted`, otherwise removes it.
    pub(super) fn granted(granted: bool, removal: Removal) -> Self {
        if granted {
            Self::Pass
        } else {
            Self::Remove(removal)
        }
    }
}
