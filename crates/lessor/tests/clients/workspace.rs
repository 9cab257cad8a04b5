//! Workspaces for Bazel, written on demand in the size that a test asks for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The files of a workspace.
#[derive(Default)]
pub(crate) struct Workspace {
    build: String,
    sources: Vec<(String, String)>,
    scripts: Vec<(String, String)>,
}

impl Workspace {
    /// C++ libraries, each with a source and a header, a test for every fourth, a program with all of them, and a generated
    /// file with a test in shell. The libraries need no header but their own, so that compiling them is quick.
    pub(crate) fn cpp(libraries: usize) -> Workspace {
        let mut workspace = Workspace::default();
        for n in 0..libraries {
            workspace.library(n);
        }
        for n in (0..libraries).step_by(4) {
            let source =
                format!("#include \"lib{n}.h\"\nint main() {{ return f{n}({n}) == {} ? 0 : 1; }}\n", 2 * n);
            workspace.sources.push((format!("lib{n}_test.cc"), source));
            let rule =
                format!("cc_test(name = 'lib{n}_test', srcs = ['lib{n}_test.cc'], deps = [':lib{n}'])\n");
            workspace.build += &rule;
        }
        let includes: String = (0..libraries).map(|n| format!("#include \"lib{n}.h\"\n")).collect();
        let calls: Vec<String> = (0..libraries).map(|n| format!("f{n}(0)")).collect();
        let source = format!("{includes}int main() {{ return {} == 0; }}\n", calls.join(" + "));
        workspace.sources.push(("program.cc".to_owned(), source));
        let all: Vec<String> = (0..libraries).map(|n| format!("':lib{n}'")).collect();
        workspace.build +=
            &format!("cc_binary(name = 'program', srcs = ['program.cc'], deps = [{}])\n", all.join(", "));
        workspace.sources.push(("input.txt".to_owned(), "hello\n".to_owned()));
        workspace.genrule("shout", &["input.txt".to_owned()], "tr a-z A-Z < $(location input.txt) > $@");
        workspace.test("shout_test", "grep -q HELLO shout.txt", &["shout.txt"]);
        workspace
    }

    /// A test in shell.
    pub(crate) fn test(&mut self, name: &str, script: &str, data: &[&str]) {
        self.scripts.push((format!("{name}.sh"), script.to_owned()));
        self.build += &format!("sh_test(name = '{name}', srcs = ['{name}.sh'], data = {data:?})\n");
    }

    fn library(&mut self, n: usize) {
        self.sources.push((format!("lib{n}.h"), format!("int f{n}(int x);\n")));
        self.sources.push((
            format!("lib{n}.cc"),
            format!("#include \"lib{n}.h\"\nint f{n}(int x) {{ return x + {n}; }}\n"),
        ));
        let rule = "srcs = ['libN.cc'], hdrs = ['libN.h'], linkstatic = True".replace('N', &n.to_string());
        self.build += &format!("cc_library(name = 'lib{n}', {rule})\n");
    }

    /// An action that writes `NAME.txt` by a command for bash.
    pub(crate) fn genrule(&mut self, name: &str, inputs: &[String], command: &str) {
        let inputs: Vec<String> = inputs.iter().map(|input| format!("'{input}'")).collect();
        let inputs = inputs.join(", ");
        self.build += &format!(
            "genrule(name = '{name}', srcs = [{inputs}], outs = ['{name}.txt'], cmd = '{command}')\n"
        );
    }

    pub(crate) fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("WORKSPACE"), "workspace(name = 'example')\n").unwrap();
        fs::write(dir.join("BUILD"), &self.build).unwrap();
        for (name, text) in &self.sources {
            fs::write(dir.join(name), text).unwrap();
        }
        for (name, text) in &self.scripts {
            write_script(&dir.join(name), text);
        }
    }
}

pub(crate) fn write_script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
