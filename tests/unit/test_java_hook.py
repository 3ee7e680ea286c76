"""Java's hook: its tables are those of jvmti.h, and the sources of the classes that it names are found."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import hooking

HEADER = hooking.HOOKS / "java.h"


def jdk() -> Path | None:
    found = shutil.which("javac")
    home = Path(os.path.realpath(found)).parents[1] if found else None
    return home if home and (home / "include" / "jvmti.h").exists() else None


@pytest.mark.skipif(not jdk() or not shutil.which("cc"), reason="there is no jvmti.h, or no C compiler")
def test_the_tables_are_those_of_the_jdk(tmp_path):
    """Compiles both headers, with our names behind a prefix, and compares every function's place and constant."""
    text = re.sub(r"\b(jint|jlong|jboolean|jobject|JNIEnv|JavaVM)\b", r"our_\1", HEADER.read_text())
    (tmp_path / "ours.h").write_text(text)
    names = ("struct JNINativeInterface_", "struct JNIInvokeInterface_", "jvmtiInterface_1")
    theirs = dict(zip(("jni", "invoke", "jvmti"), names, strict=True))
    checks = [
        f"offsetof(struct {table}, {name}) == offsetof({theirs[table]}, {name})"
        for table, end in re.findall(r"struct (jni|invoke|jvmti) \{(.*?)\n\};", text, re.DOTALL)
        for name in re.findall(r"\(\*(\w+)\)", end)
    ]
    constants = {
        "JVMTI_VERSION": "JVMTI_VERSION_1_1", "ENABLE": "JVMTI_ENABLE", "EVENT_VM_INIT": "JVMTI_EVENT_VM_INIT",
        "EVENT_NATIVE_METHOD_BIND": "JVMTI_EVENT_NATIVE_METHOD_BIND", "FIRST_EVENT": "JVMTI_MIN_EVENT_TYPE_VAL",
    }  # fmt: skip
    enum = text.replace("JVMTI_VERSION =", "OUR_JVMTI_VERSION =")
    (tmp_path / "ours.h").write_text(enum)
    checks += [f"{'OUR_' * (ours == 'JVMTI_VERSION')}{ours} == {value}" for ours, value in constants.items()]
    checks += ["sizeof(Frame) == sizeof(jvmtiFrameInfo)", "sizeof(Line) == sizeof(jvmtiLineNumberEntry)"]
    bits = ("can_tag_objects", "can_get_source_file_name", "can_get_line_numbers",
            "can_generate_native_method_bind_events")  # fmt: skip
    asserts = "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    tests = "".join(
        f"{{jvmtiCapabilities all = {{.{bit} = 1}}; unsigned first; memcpy(&first, &all, 4);"
        f" if (first != {bit.upper()}) return 1;}}\n"
        for bit in bits
    )
    source = f'#include <jvmti.h>\n#include <string.h>\n#include "ours.h"\n{asserts}int main(void) {{\n{tests}}}\n'
    (tmp_path / "check.c").write_text(source)
    home = jdk()
    includes = [f"-I{home}/include", f"-I{home}/include/linux"]
    done = subprocess.run(
        ["cc", "-std=c11", *includes, "-o", "check", "check.c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(checks) > 25 and subprocess.run([tmp_path / "check"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("loaded_from", "sources"),
    [
        ("target/classes", "src/main/java"), ("target/test-classes", "src/test/java"),
        ("build/classes/java/main", "src/main/java"), ("out", "src"), ("classes", ""),
        ("libs/app.jar", "src/main/java"),
    ],
)  # fmt: skip
def test_the_source_of_a_class(tmp_path, loaded_from, sources):
    hooking.source_of.cache_clear()
    source = tmp_path / sources / "org" / "example" / "Server.java"
    source.parent.mkdir(parents=True)
    source.touch()
    assert hooking.source_of(f"{tmp_path}/{loaded_from}//org/example/Server.java") == str(source)
    missing = f"{tmp_path}/{loaded_from}//org/other/Server.java"
    assert hooking.source_of(missing) == missing.replace("//", "/")


@pytest.mark.parametrize("file", ["/src/server.py", "com/library/Framing.java", "<stdin>", ""])
def test_what_is_no_class_stays_as_it_is(file):
    assert hooking.source_of(file) == file


def test_the_options_of_java_that_are_set_stay():
    agent, own = Path("/hooks/_java.so"), {"JAVA_TOOL_OPTIONS": "-Xmx1g"}
    assert hooking.hooked({}, agent.parent, agent)["JAVA_TOOL_OPTIONS"] == "-agentpath:/hooks/_java.so"
    assert hooking.hooked(own, agent.parent, agent)["JAVA_TOOL_OPTIONS"] == "-Xmx1g -agentpath:/hooks/_java.so"
    assert "JAVA_TOOL_OPTIONS" not in hooking.hooked(own, agent.parent, None)
