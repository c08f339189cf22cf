"""What an episode has changed is told by its files: exactly, in bounds, and whatever the policy has laid out."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandboxes import FILES, Episode, episode, make_rootfs, make_tree, needs_bubblewrap

from jaxmtrl.envs.swe.sandbox.api import FileChange

pytestmark = needs_bubblewrap()


def told(played: Episode) -> dict[str, str | None]:
    changed = played.sandbox.changes()
    assert not changed.too_large
    assert [file.path for file in changed.files] == sorted(file.path for file in changed.files)
    return {file.path: None if file.content is None else file.content.decode() for file in changed.files}


@pytest.mark.parametrize(
    "command, wanted",
    [
        ("true", {}),
        ("echo new > new.py", {"new.py": "new\n"}),
        ("echo x >> a.py", {"a.py": "x = 1\nx\n"}),
        ("rm a.py", {"a.py": None}),
        ("touch a.py; chmod 600 folder/b.py", {}),
        ("cp a.py b; mv b a.py", {}),
        ("rm a.py; printf 'x = 1\\n' > a.py", {}),
        ("chmod +x a.py", {"a.py": "x = 1\n"}),
        ("mv a.py c.py", {"a.py": None, "c.py": "x = 1\n"}),
        ("rm -r folder", {"folder/b.py": None, "folder/deep/c.txt": None}),
        ("rm -r folder; mkdir folder", {"folder/b.py": None, "folder/deep/c.txt": None}),
        ("rm -r folder; mkdir -p folder/deep; echo y = 2 > folder/b.py", {"folder/deep/c.txt": None}),
        (
            "mv folder other",
            {"folder/b.py": None, "folder/deep/c.txt": None, "other/b.py": "y = 2\n", "other/deep/c.txt": "c\n"},
        ),
        ("rm -r folder; echo file > folder", {"folder": "file\n", "folder/b.py": None, "folder/deep/c.txt": None}),
        ("rm a.py; mkdir a.py; echo in > a.py/in", {"a.py": None, "a.py/in": "in\n"}),
        ("rm a.py; ln folder/b.py a.py", {"a.py": "y = 2\n"}),
        ("mkdir -p empty/er", {}),
        ("mkdir -p .git/x __pycache__ n/.git; touch .git/x/y __pycache__/a.pyc n/.git/z", {}),
        ("echo odd > $'odd\\nname <|im_end|>'", {"odd\nname <|im_end|>": "odd\n"}),
    ],
)
def test_changes_are_told_exactly(tmp_path: Path, command: str, wanted: dict[str, str | None]) -> None:
    with episode(tmp_path) as played:
        assert played.run(command).exit_code == 0
        assert told(played) == wanted


def test_the_executable_bit_is_told(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("chmod -x run.sh; echo x > t.sh; chmod +x t.sh")
        changed = {file.path: file.executable for file in played.sandbox.changes().files}
        assert changed == {"run.sh": False, "t.sh": True}


def test_layers_lie_over_the_tree_the_last_on_top(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    fault = make_tree(tmp_path / "fault", {"a.py": "x = 2\n", "folder/only.py": "only\n"})
    top = make_tree(tmp_path / "top", {"a.py": "x = 3\n"})
    with episode(tmp_path, tree=tree, layers=(fault, top)) as played:
        assert played.says("cat a.py folder/b.py folder/only.py") == "x = 3\ny = 2\nonly"
        assert told(played) == {}
        played.run("touch folder/only.py; echo x = 2 > a.py; rm -r folder; mkdir folder; echo y = 2 > folder/b.py")
        assert told(played) == {"a.py": "x = 2\n", "folder/deep/c.txt": None, "folder/only.py": None}


def test_an_images_workspace_tells_its_changes(tmp_path: Path) -> None:
    with episode(tmp_path, rootfs=make_rootfs(tmp_path / "image")) as played:
        assert played.says("pwd; id -u; cat a.py; echo new > new.py; rm a.py; echo x > /etc/x; cat /etc/x")
        assert told(played) == {"a.py": None, "new.py": "new\n"}
        assert played.says("cat /etc/x; ls /").split()[0] == "x"  # its own copy of the image
        assert "Read-only" in played.says("echo > /new")
        assert not (tmp_path / "image/etc/x").exists()


def test_links_and_special_files_are_named_and_never_followed(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("ln -s /etc/shadow a; mkfifo b; ln -sf / folder/b.py; mkdir d; ln -s ../a.py d/link")
        played.python("import socket; socket.socket(socket.AF_UNIX).bind('c')")
        changed = played.sandbox.changes()
        assert changed.dropped == ("a", "b", "c", "d/link", "folder/b.py")
        assert changed.files == (FileChange(path="folder/b.py", content=None),)


def test_names_that_are_no_text_are_dropped(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("echo x > $'\\xff\\xfe'; mkdir $'d\\xff'; echo y > $'d\\xff/in'; echo fine > fine")
        changed = played.sandbox.changes()
        assert [file.path for file in changed.files] == ["fine"] and len(changed.dropped) == 2


def test_what_is_closed_is_read_all_the_same(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("mkdir -p d/e; echo in > d/e/f; echo a > a.py; chmod 000 d/e/f a.py d/e d .")
        assert told(played) == {"a.py": "a\n", "d/e/f": "in\n"}


def test_depth_has_an_end(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("p=$(printf 'd/%.0s' $(seq 300)); mkdir -p $p; echo deep > $p/deep; echo x > x")
        changed = played.sandbox.changes()
        assert [file.path for file in changed.files] == ["x"]
        assert len(changed.dropped) == 1 and changed.dropped[0].startswith("d/d/d/")


@pytest.mark.parametrize(
    "command",
    [
        "for i in $(seq 600); do echo > f$i; done",
        "head -c 9000000 /dev/zero > big",
        "truncate -s 30M sparse",
        "for i in $(seq 5); do head -c 300000 /dev/zero > f$i; done",
    ],
)
def test_too_much_is_said_and_not_read(tmp_path: Path, command: str) -> None:
    with episode(tmp_path) as played:
        assert played.run(command).exit_code == 0
        changed = played.sandbox.changes()
        assert changed.files == () and changed.too_large.startswith("more than ")


def test_the_bounds_themselves_are_not_too_much(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("for i in 1 2 3; do head -c 100 /dev/zero > f$i; done")
        assert len(played.sandbox.changes(max_files=3, max_bytes=300).files) == 3
        assert played.sandbox.changes(max_files=2, max_bytes=300).too_large == "more than 2 files changed"
        assert played.sandbox.changes(max_files=3, max_bytes=299).too_large == "more than 299 bytes in changed files"


def test_planted_git_settings_run_nothing_of_ours(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        played.run("git init -q . && git config core.fsmonitor 'touch /testbed/ran' && echo x > new")
        assert told(played) == {"new": "x\n"}
        assert played.says("ls") == "a.py\nfolder\nnew\nrun.sh"


def test_git_works_inside(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        said = played.says("git init -q . && git add -A && git commit -qm base && echo x >> a.py && git diff --stat")
        assert "a.py | 1 +" in said and told(played) == {"a.py": FILES["a.py"] + "x\n"}


def test_reports_can_be_written_and_not_replaced(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        command = (
            "echo one > /run/report; rm /run/report; ln -sf /etc/shadow /run/report; mv /run/report /run/r; "
            "mkfifo p; mv p /testbed/log; echo two > log"
        )
        result = played.run(command, reports=["/run/report", "/testbed/log"])
        assert result.exit_code == 0, result.output
        assert played.sandbox.report("/run/report") == b"one\n"
        assert played.sandbox.report("/testbed/log") == b"two\n"
        assert played.sandbox.report("/testbed/log", max_bytes=2) == b"tw"
        played.run("true", reports=["/run/report"])
        assert played.sandbox.report("/run/report") == b""
        assert played.says("ls log p 2>/dev/null") == "p"
        played.run("head -c 20000000 /dev/zero > /run/report", reports=["/run/report"])
        assert len(played.sandbox.report("/run/report")) == 4 << 20


def test_paths_of_ours_must_be_plain(tmp_path: Path) -> None:
    with episode(tmp_path) as played:
        for path in ("relative", "/a/../b", "/testbed//x", "/testbed/", "/a\0"):
            with pytest.raises(ValueError, match="plain absolute path"):
                played.run("true", shown={path: b""})
        for name, value in (("A", "b\0--share-net"), ("A=B", "c"), ("", "d")):
            with pytest.raises(ValueError, match="cannot be a variable"):
                played.run("true", environment={name: value})
