use super::*;

fn of(path: &str) -> Option<&'static str> {
    reason(&RelativePath::new(path).expect("a path"), false, false)
}

#[test]
fn each_row_is_found_and_says_why() {
    for (number, row) in CONTROL_FILES.iter().enumerate() {
        assert!(row.reason.len() > 10, "{}", row.pattern);
        let stars = |part: &str| part.matches('*').count();
        assert!(
            row.pattern.split('/').all(|part| stars(part) <= 1),
            "{}",
            row.pattern
        );
        for path in [
            row.pattern.replace('*', "x"),
            format!("deep/down/{}", row.pattern.replace('*', "x")),
            format!("{}/beneath/it", row.pattern.replace('*', "x")),
            row.pattern.replace('*', "x").to_uppercase(),
        ] {
            let found = of(&path).unwrap_or_else(|| panic!("{path} is not found"));
            // An earlier row may be the wider one, never a later one.
            let first = CONTROL_FILES.iter().position(|row| row.reason == found);
            assert!(
                first.is_some_and(|first| first <= number),
                "{path}: {found}"
            );
        }
        // None is so wide that it takes what only ends or begins like it.
        if !row.pattern.contains('*') && !row.pattern.contains('/') {
            for other in [format!("{}-x", row.pattern), format!("x-{}", row.pattern)] {
                let found = of(&other);
                let wide = CONTROL_FILES.iter().filter(|row| row.pattern.contains('*'));
                let by_another = wide.clone().any(|row| found == Some(row.reason));
                assert!(found.is_none() || by_another, "{other}: {found:?}");
            }
        }
    }
}

#[test]
fn no_pattern_is_there_twice() {
    let mut patterns: Vec<String> = CONTROL_FILES
        .iter()
        .map(|row| row.pattern.to_ascii_lowercase())
        .collect();
    let count = patterns.len();
    patterns.sort_unstable();
    patterns.dedup();
    assert_eq!(patterns.len(), count);
}

/// Files that are run or trusted outside, class by class, by names as people meet them.
#[test]
fn every_class_is_covered() {
    for (class, paths) in [
        (
            "git",
            &[
                ".git/hooks/post-checkout",
                ".git/config.worktree",
                "sub/.gitattributes",
                ".git/info/attributes",
            ][..],
        ),
        (
            "a repository elsewhere",
            &["worktree/.git", ".jj/repo", ".hg/sharedpath", "bare/HEAD"],
        ),
        ("mercurial", &[".hg/hgrc", ".hgrc", "x/.hg/hgrc-not-shared"]),
        (
            "jujutsu",
            &[
                ".jj/repo/config.toml",
                ".jj/workspace-config.toml",
                ".jjconfig.toml",
                ".config/jj/config.toml",
            ],
        ),
        (
            "git hook runners",
            &[
                ".pre-commit-config.yml",
                "lefthook.yml",
                ".husky/pre-commit",
            ],
        ),
        (
            "CI",
            &[
                ".github/workflows/ci.yml",
                ".gitlab-ci.yml",
                "Jenkinsfile.release",
                ".tekton/run.yaml",
                "action.yml",
            ],
        ),
        (
            "CI and checks of others",
            &["codemagic.yaml", ".lgtm.yml", ".trunk/trunk.yaml"],
        ),
        (
            "linters and what editors execute",
            &[
                ".eslintrc.cjs",
                ".eslintrc",
                "web/eslint.config.mts",
                ".prettierrc.mjs",
                "prettier.config.ts",
                ".stylelintrc.js",
                "stylelint.config.js",
                ".babelrc.js",
                "babel.config.json",
                "postcss.config.cjs",
                "tailwind.config.ts",
                "svelte.config.js",
                "next.config.mjs",
                "nuxt.config.ts",
                "astro.config.mjs",
                "vite.config.ts",
                "vitest.config.mts",
                "webpack.config.js",
                "rollup.config.mjs",
                "jest.config.ts",
                "commitlint.config.js",
                ".lintstagedrc.js",
                "lint-staged.config.js",
                ".mocharc.cjs",
                "karma.conf.js",
                "gulpfile.babel.js",
                "Gruntfile.coffee",
            ],
        ),
        ("direnv", &[".envrc", "a/.envrc.local"]),
        (
            "tool managers",
            &[".mise.toml", "mise.local.toml", "devbox.json"],
        ),
        (
            "editors",
            &[
                ".vscode/tasks.json",
                ".vscode/launch.json",
                "x.code-workspace",
                ".idea/runConfigurations/x.xml",
                ".nvim.lua",
                ".dir-locals.el",
                ".zed/tasks.json",
            ],
        ),
        (
            "agents' hooks",
            &[
                ".claude/settings.json",
                ".codex/config.toml",
                ".gemini/settings.json",
                ".cursor/hooks.json",
                ".kiro/hooks/x",
                ".github/hooks/x.json",
            ],
        ),
        (
            "agents' servers",
            &[
                ".mcp.json",
                ".vscode/mcp.json",
                ".cursor/mcp.json",
                "opencode.jsonc",
                ".roo/mcp.json",
                ".amazonq/mcp.json",
            ],
        ),
        (
            "agents' instructions",
            &[
                "docs/AGENTS.md",
                "CLAUDE.md",
                ".github/copilot-instructions.md",
                ".windsurfrules",
                ".clinerules",
            ],
        ),
        (
            "packages",
            &[
                ".npmrc",
                ".yarn/plugins/x.cjs",
                ".pnp.cjs",
                ".cargo/config.toml",
                "pip.conf",
                "gradle/wrapper/gradle-wrapper.jar",
            ],
        ),
        (
            "shells",
            &[
                ".bashrc",
                ".zshenv",
                ".config/fish/config.fish",
                ".profile",
                ".local/bin/ls",
            ],
        ),
        (
            "sessions",
            &[
                ".config/autostart/x.desktop",
                ".config/systemd/user/x.service",
                ".ssh/authorized_keys",
            ],
        ),
        (
            "interpreters and debuggers",
            &[
                ".gdbinit",
                ".psqlrc",
                ".irbrc",
                ".pdbrc",
                "sitecustomize.py",
            ],
        ),
    ] {
        for path in paths {
            assert!(of(path).is_some(), "{class}: {path}");
        }
    }
}

#[test]
fn a_projects_own_source_is_not_among_them() {
    for path in [
        "Makefile",
        "justfile",
        "package.json",
        "build.rs",
        "setup.py",
        "pyproject.toml",
        "Cargo.toml",
        "Cargo.lock",
        "CMakeLists.txt",
        "Dockerfile",
        "shell.nix",
        "README.md",
        ".gitignore",
        ".editorconfig",
        ".git/index",
        ".git/objects/ab/cdef",
        ".git/refs/heads/main",
        ".git/HEAD",
        ".hg/store/00changelog.i",
        ".jj/repo/store/git/objects/x",
        ".github/README.md",
        ".github/ISSUE_TEMPLATE/bug.md",
        "src/config.rs",
        "src/action.rs",
        "tools/check.sh",
        "gradle/libs.versions.toml",
        "environment.yml",
        "model.pth",
        "conftest.py",
        "tsconfig.json",
        "src/vite.config/x.ts",
        "src/eslint.ts",
        "app.config.ts",
        "docs/hooks/index.md",
    ] {
        assert_eq!(of(path), None, "{path}");
    }
}

#[test]
fn a_link_or_a_moved_directory_stands_for_what_could_be_in_it() {
    for path in [".hg", ".jj", ".jj/repo", "gradle", ".config", ".github"] {
        let path = RelativePath::new(path).expect("a path");
        assert!(reason(&path, true, true).is_some(), "{path}");
        assert_eq!(reason(&path, true, false), None, "{path}");
    }
}

#[test]
fn of_an_agents_directory_only_its_history_is_ordinary() {
    let path = |path: &str| RelativePath::new(path).expect("a path");
    for history in [
        "sessions/2026/11/22/rollout.jsonl",
        "history.jsonl",
        "logs_2.sqlite-wal",
        "projects/-srv-app/0.jsonl",
        "storage/session/one.json",
        "opencode.db-shm",
        "TODOS/one.json",
    ] {
        assert!(is_history(&path(history)), "{history}");
        // What remembers approvals is kept, and yet not applied without a yes.
        let remembers = history.starts_with("storage") || history.starts_with("opencode.db");
        assert_eq!(is_mere_history(&path(history)), !remembers, "{history}");
    }
    for other in [
        "",
        "config.toml",
        "settings.json",
        "settings.local.json",
        "hooks.json",
        "hooks/one.sh",
        "plugins/one/plugin.json",
        "skills/one/SKILL.md",
        "AGENTS.md",
        "shell-snapshots/one.sh",
        "projects/-srv-app/memory/MEMORY.md",
        "memories/one.md",
        "bin/server",
        "of-the-next-version",
        "sessions-of-tomorrow",
        "environments.toml",
        "models_cache.json",
    ] {
        assert!(!is_history(&path(other)), "{other}");
    }
    for directory in [
        ".codex",
        ".claude",
        ".gemini",
        ".config/opencode",
        ".local/share/opencode",
    ] {
        let within = path(&format!("home/ann/{directory}/config"));
        assert!(reason(&within, false, false).is_some(), "{directory}");
    }
}

#[test]
fn the_index_of_a_worktree_or_a_submodule_is_one() {
    let check = |path: &str, expected: bool| {
        let path = RelativePath::new(path).unwrap();
        assert_eq!(is_git_index(&path), expected, "{path}");
    };
    check(".git/index", true);
    check("lib/.GIT/index", true);
    check(".git/modules/x/index", true);
    check(".git/modules/x/modules/deep/er/index", true);
    check(".git/modules/refs/index", true);
    check(".git/worktrees/x/index", true);
    check(".git/modules/x/worktrees/y/index", true);
    check(".git/refs/heads/index", false);
    check(".git/modules/x/HEAD", false);
    check(".git/modules/index", false);
    check("modules/x/index", false);
    check("index", false);
}
