//! Fakes of the repositories that Bazel 4 downloads although it has the same rules built in: each symbol is the
//! built-in rule, with the tag by which Bazel knows that it was loaded from a repository.

use std::fs;
use std::path::Path;

pub(crate) const REPOSITORIES: [&str; 4] = ["rules_cc", "rules_java", "rules_proto", COVERAGE];

const COVERAGE: &str = "remote_coverage_tools";

/// Test rules name its targets also where nothing is covered.
const COVERAGE_BUILD: &str = r#"
[filegroup(name = name, visibility = ["//visibility:public"]) for name in ["coverage_report_generator", "lcov_merger"]]
sh_binary(name = "Main", srcs = ["nothing.sh"], visibility = ["//visibility:public"])
"#;

const RULES: [(&str, &[&str]); 3] = [
    ("cc", &["binary", "library", "test", "import", "proto_library", "toolchain", "toolchain_suite"]),
    (
        "java",
        &[
            "binary",
            "import",
            "library",
            "lite_proto_library",
            "proto_library",
            "test",
            "package_configuration",
            "plugin",
            "runtime",
            "toolchain",
        ],
    ),
    ("proto", &["library", "lang_toolchain"]),
];

pub(crate) fn write(dir: &Path) {
    for (language, rules) in RULES {
        let repository = dir.join(format!("rules_{language}"));
        let package = repository.join(language);
        fs::create_dir_all(&package).unwrap();
        fs::write(repository.join("WORKSPACE"), "").unwrap();
        fs::write(repository.join("BUILD"), "").unwrap();
        fs::write(package.join("BUILD"), "").unwrap();
        let rules = rules.iter().map(|rule| forwarding(language, &format!("{language}_{rule}")));
        fs::write(package.join("defs.bzl"), rules.collect::<String>()).unwrap();
    }
    let coverage = dir.join(COVERAGE);
    fs::create_dir_all(&coverage).unwrap();
    fs::write(coverage.join("WORKSPACE"), "").unwrap();
    fs::write(coverage.join("BUILD"), COVERAGE_BUILD).unwrap();
    crate::workspace::write_script(&coverage.join("nothing.sh"), "exit 0");
}

fn forwarding(language: &str, rule: &str) -> String {
    let tag = format!("__{}_RULES_MIGRATION_DO_NOT_USE_WILL_BREAK__", language.to_uppercase());
    format!(
        "def {rule}(tags = None, **attributes):\n    native.{rule}(tags = (tags or []) + [\"{tag}\"], **attributes)\n"
    )
}
